// Which instruction set the kernels of this process use.
#ifndef MOEWE_KERNELS_ISA_H_
#define MOEWE_KERNELS_ISA_H_

#include <cstdint>

namespace moewe::kernels {

enum class Isa : uint8_t { kScalar, kAvx2, kAvx512Vnni, kNeon };

// The best one that the CPU has, or a lesser one that MOEWE_ISA=scalar|avx2|avx512 asks for (for
// tests and measurements). Decided once, before any kernel runs. Throws Error{kUnknownName} for a
// wish that is not one of these or that the CPU cannot grant.
Isa ActiveIsa();

}  // namespace moewe::kernels

#endif  // MOEWE_KERNELS_ISA_H_
