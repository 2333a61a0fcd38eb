// The 6-byte tile of q1 and q1s: [f16 scale][4 bytes: bit k of byte j is weight 8 j + k]; w = scale
// * (2 bit - 1). Only codec files include this.
#ifndef MOEWE_QUANT_SIGN_TILE_H_
#define MOEWE_QUANT_SIGN_TILE_H_

#include <limits>

#include "quant/layout.h"

namespace moewe::quant {

inline constexpr uint64_t kSignTileBytes = kScaleBytes + kGroup / 8;

inline std::optional<uint64_t> SignTilesSize(MatrixShape shape) {
  if (shape.cols % kGroup != 0 || !CheckedMul(shape.rows, shape.cols)) return std::nullopt;
  return CheckedMulAdd(CheckedMul(shape.rows, shape.cols / kGroup), kSignTileBytes, 0);
}

inline void DecodeSignTiles(const uint8_t* bytes, MatrixShape shape, uint64_t row_begin,
                            uint64_t row_end, float* out) {
  const uint64_t tiles_per_row = shape.cols / kGroup;
  const uint8_t* tile = bytes + row_begin * tiles_per_row * kSignTileBytes;
  const uint64_t count = (row_end - row_begin) * tiles_per_row;
  for (uint64_t t = 0; t < count; ++t, tile += kSignTileBytes, out += kGroup) {
    const float scale = LoadF16(tile);
    for (uint64_t i = 0; i < kGroup; ++i) {
      const int bit = tile[kScaleBytes + i / 8] >> (i % 8) & 1;
      out[i] = scale * static_cast<float>(2 * bit - 1);
    }
  }
}

// A magnitude from which on a weight is kept apart and does not count for the tile; NaN never is.
inline constexpr float kNoOutliers = std::numeric_limits<float>::quiet_NaN();

// With `carry`, the error so far in the row, which is added to the next weight before its sign is
// taken; weights that are kept apart make no error and store their own sign.
inline void EncodeSignTile(const float* values, float outlier, float* carry, uint8_t* tile) {
  const auto kept = [&](float value) { return std::fabs(value) >= outlier; };
  float sum = 0.0f;
  uint64_t count = 0;
  for (uint64_t i = 0; i < kGroup; ++i) {
    if (kept(values[i])) continue;
    sum += std::fabs(values[i]);
    ++count;
  }
  const uint16_t bits = StoredScaleBits(count == 0 ? 0.0f : sum / static_cast<float>(count));
  const float scale = F16ToF32(bits);
  StoreU16(tile, bits);
  uint32_t signs = 0;
  for (uint64_t i = 0; i < kGroup; ++i) {
    const bool diffuse = carry != nullptr && !kept(values[i]);
    const float wanted = diffuse ? values[i] + *carry : values[i];
    const bool positive = wanted >= 0.0f;
    signs |= uint32_t{positive} << i;
    if (diffuse) *carry += values[i] - (positive ? scale : -scale);
  }
  std::memcpy(tile + kScaleBytes, &signs, sizeof(signs));
}

}  // namespace moewe::quant

#endif  // MOEWE_QUANT_SIGN_TILE_H_
