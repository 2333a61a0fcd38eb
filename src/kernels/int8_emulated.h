// The AVX-512 VNNI source over SIMDe's emulation of its intrinsics, for tests on CPUs without them.
#ifndef MOEWE_KERNELS_INT8_EMULATED_H_
#define MOEWE_KERNELS_INT8_EMULATED_H_

#include "kernels/int8.h"

namespace moewe::kernels {
#if defined(__x86_64__)
extern const Int8Kernels kInt8Avx512Emulated;
#endif
}  // namespace moewe::kernels

#endif  // MOEWE_KERNELS_INT8_EMULATED_H_
