// The few large weights that q1s and q1t keep apart from their tiles, in the integer path.
//
//   q1s: [tiles][u32 count][{u32 flat index, f16 value} ascending]
//   q1t: [tiles][u32 row_ptr: rows + 1][{u16 column, f16 value}]
//
// A value takes the place of its tile's weight: y = fma(value - weight, q * dx, y), entries in
// stored order, after the row's tiles are summed up.
#ifndef MOEWE_KERNELS_OVERLAY_H_
#define MOEWE_KERNELS_OVERLAY_H_

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/layout.h"

namespace moewe::kernels {

// The weight of a sign tile or a ternary tile in column `i` of its group.
inline float SignWeight(const uint8_t* tile, size_t i) {
  const float scale = LoadF16(tile);
  return (tile[2 + i / 8] >> (i % 8) & 1) != 0 ? scale : -scale;
}
inline int TernaryDigit(const uint8_t* tile, size_t i) {
  uint32_t codes = tile[2 + i / 5];
  for (size_t k = i % 5; k > 0; --k) codes /= 3;
  return codes % 3 == 2 ? -1 : static_cast<int>(codes % 3);
}
inline float TernaryWeight(const uint8_t* tile, size_t i) {
  return LoadF16(tile) * static_cast<float>(TernaryDigit(tile, i));
}

// Walks through the entries of rows in ascending order, from `row` on. No entries for other dtypes.
class Overlay {
 public:
  Overlay(const Matrix& w, uint32_t row) : w_(w) {
    const size_t tiles = size_t{w.rows} * (w.cols / kGroup);
    if (w.dtype == DType::kQ1s) {
      const uint8_t* count = w.bytes.data() + tiles * kSignTileBytes;
      entries_ = count + 4;
      end_ = LoadU32(count);
      size_t high = end_;
      while (at_ < high) {
        const size_t middle = at_ + (high - at_) / 2;
        (FlatIndex(middle) < uint64_t{row} * w.cols ? at_ : high) =
            FlatIndex(middle) < uint64_t{row} * w.cols ? middle + 1 : middle;
      }
    } else if (w.dtype == DType::kQ1t) {
      pointers_ = w.bytes.data() + tiles * kTernaryTileBytes;
      entries_ = pointers_ + (size_t{w.rows} + 1) * 4;
    }
  }

  // Calls each(column, value - weight of the tile) for the entries of `row`; rows ascend.
  template <class Each>
  void ForRow(uint32_t row, const Each& each) {
    const size_t groups = w_.cols / kGroup;
    if (w_.dtype == DType::kQ1s) {
      const uint64_t begin = uint64_t{row} * w_.cols;
      for (; at_ < end_ && FlatIndex(at_) < begin + w_.cols; ++at_) {
        const size_t flat = FlatIndex(at_);
        const uint8_t* tile = w_.bytes.data() + flat / kGroup * kSignTileBytes;
        each(flat - begin, LoadF16(entries_ + at_ * 6 + 4) - SignWeight(tile, flat % kGroup));
      }
    } else if (w_.dtype == DType::kQ1t) {
      const uint8_t* tiles = w_.bytes.data() + row * groups * kTernaryTileBytes;
      const size_t end = LoadU32(pointers_ + (size_t{row} + 1) * 4);
      for (size_t i = LoadU32(pointers_ + size_t{row} * 4); i < end; ++i) {
        const size_t col = LoadU16(entries_ + i * 4);
        const uint8_t* tile = tiles + col / kGroup * kTernaryTileBytes;
        each(col, LoadF16(entries_ + i * 4 + 2) - TernaryWeight(tile, col % kGroup));
      }
    }
  }

 private:
  uint64_t FlatIndex(size_t i) const { return LoadU32(entries_ + i * 6); }

  const Matrix& w_;
  const uint8_t* entries_ = nullptr;
  const uint8_t* pointers_ = nullptr;
  size_t at_ = 0;
  size_t end_ = 0;
};

// y + delta * x[col], for a PreparedRow of Input::kPlain.
inline float AddOverlay(float y, float delta, const uint8_t* x, size_t padded, size_t col) {
  float dx;
  std::memcpy(&dx, x + padded * 32 + col / kGroup * 4, 4);
  return std::fma(delta, static_cast<float>(static_cast<int8_t>(x[col])) * dx, y);
}

}  // namespace moewe::kernels

#endif  // MOEWE_KERNELS_OVERLAY_H_
