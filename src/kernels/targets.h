// Which of Highway's targets are compiled: those that the integer kernels have, too. A lesser x86
// CPU runs the scalar definitions. Included before hwy/foreach_target.h.
#ifndef MOEWE_KERNELS_TARGETS_H_
#define MOEWE_KERNELS_TARGETS_H_

#if defined(__x86_64__)
#define HWY_WANT_AVX3_DL 1
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#endif

#endif  // MOEWE_KERNELS_TARGETS_H_
