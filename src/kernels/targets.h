// Which of Highway's targets are compiled: those that the integer kernels have, too. A lesser x86
// CPU runs the scalar definitions. Included before hwy/foreach_target.h.
#ifndef MOEWE_KERNELS_TARGETS_H_
#define MOEWE_KERNELS_TARGETS_H_

#if defined(__x86_64__)
#define HWY_WANT_AVX3_DL 1
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#elif defined(__aarch64__)
// Vectors of a size that only the CPU knows can't be elements of arrays, which tiles are.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif

#endif  // MOEWE_KERNELS_TARGETS_H_
