// The scale ladder of a q4tp row: t[0] = exp2(lo), t[c] = t[c - 1] * exp2(step), in f32, with lo
// and step stored as f16 (CMF v2 section 3.2; the running product is what existing readers
// compute).
#ifndef MOEWE_KERNELS_LADDER_H_
#define MOEWE_KERNELS_LADDER_H_

#include <cstddef>
#include <cstdint>

namespace moewe::kernels {

inline constexpr int kLadderRungs = 32;

// exp2 of every f16 value, correctly rounded to f32: [65536], made on first use.
const float* Exp2OfF16();

// The rungs of a row whose stored [f16 lo][f16 step] are at `params`.
inline void MakeLadder(const uint8_t* params, float (&rungs)[kLadderRungs]) {
  const float* exp2 = Exp2OfF16();
  rungs[0] = exp2[params[0] | params[1] << 8];
  const float ratio = exp2[params[2] | params[3] << 8];
  for (int c = 1; c < kLadderRungs; ++c) rungs[c] = rungs[c - 1] * ratio;
}

// The 5-bit code of a group in a row's codes.
inline uint32_t LadderCode(const uint8_t* codes, size_t group) {
  const size_t bit = group * 5;
  uint32_t word = codes[bit / 8];
  if (bit % 8 > 3) word |= uint32_t{codes[bit / 8 + 1]} << 8;
  return (word >> (bit % 8)) & 31;
}

}  // namespace moewe::kernels

#endif  // MOEWE_KERNELS_LADDER_H_
