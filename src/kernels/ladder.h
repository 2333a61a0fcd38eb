// The scale ladder of a q4tp row: t[0] = exp2(lo), t[c] = t[c - 1] * exp2(step), in f32, with lo
// and step stored as f16 (CMF v2 section 3.2; the running product is what existing readers
// compute).
#ifndef MOEWE_KERNELS_LADDER_H_
#define MOEWE_KERNELS_LADDER_H_

#include <cstdint>

namespace moewe::kernels {

inline constexpr int kLadderRungs = 32;

// exp2 of every f16 value, correctly rounded to f32: [65536], made on first use.
const float* Exp2OfF16();

}  // namespace moewe::kernels

#endif  // MOEWE_KERNELS_LADDER_H_
