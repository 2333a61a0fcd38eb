// How the integer kernels ask the caches for weights when one activation row walks through a
// matrix.
//
// A walk goes block by block of eight rows: first their scales, which is arithmetic on few bytes,
// then their weights. Memory must not rest meanwhile: each block asks for as many bytes as it has
// itself, a quarter of them beside the scales and the others beside the weights, about as the two
// take time, kAheadBytes further on, each cache line once and in order. Where the rows at hand end,
// the walk asks for what its thread reads next.
#ifndef MOEWE_KERNELS_PREFETCH_H_
#define MOEWE_KERNELS_PREFETCH_H_

#include <cstddef>
#include <cstdint>

#include "kernels/layout.h"

namespace moewe::kernels {

inline constexpr size_t kCacheLine = 64;
inline constexpr size_t kAheadBytes = 4096;
inline constexpr size_t kScalesAheadBytes = 12288;

// The rows that a thread reads after those at hand; none where w is null.
struct NextRows {
  const Matrix* w = nullptr;
  uint32_t row = 0;
};

inline void PrefetchLines(const uint8_t* p, size_t lines) {
  for (size_t i = 0; i < lines; ++i) __builtin_prefetch(p + i * kCacheLine);
}

// Reads one byte of each cache line of what is about to be worked on, in order: a stream that the
// CPU runs ahead of by itself, which rows side by side are not.
inline void ReadThrough(const uint8_t* p, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kCacheLine) {
    asm volatile("" : : "r"(*(p + at)));
  }
}

// The weights of a row, without scales that lie apart; null where rows have no fixed place.
inline const uint8_t* RowWeights(const Matrix& w, uint32_t row) {
  switch (w.dtype) {
    case DType::kQ8Row:
    case DType::kQ82f:
      return w.bytes.data() + size_t{row} * w.cols;
    case DType::kQ4Block:
    case DType::kQ4tp:
      return w.bytes.data() + row * (w.cols / kGroup * kGroupNibbles);
    case DType::kSmoeQ4:
    case DType::kSmoeQ2:
      return SmoeLayout(w).Codes(row);
    case DType::kQ4Tiled:
      return w.bytes.data() + row * (w.cols / kGroup * kTileBytes);
    default:
      return nullptr;
  }
}

// Fetches what the scale panels of rows [row, row + 8) read beside the nibbles.
inline void PrefetchScales(const Matrix& w, uint32_t row) {
  const auto fetch = [](const uint8_t* p, size_t bytes) {
    PrefetchLines(p, bytes / kCacheLine + 1);
  };
  if (row >= w.rows) return;
  if (w.dtype == DType::kQ4Block) {
    const size_t row_bytes = w.cols / kGroup * 2;
    fetch(Q4BlockLayout(w).scales + row * row_bytes, 8 * row_bytes);
  } else if (w.dtype == DType::kQ4tp) {
    const Q4tpLayout layout(w);
    fetch(layout.params + size_t{row} * 4, 32);
    fetch(layout.codes + row * layout.code_bytes, 8 * layout.code_bytes);
  } else if (w.dtype == DType::kSmoeQ4 || w.dtype == DType::kSmoeQ2) {
    const SmoeLayout layout(w);
    fetch(layout.Scales(row), 8 * layout.pairs_per_row * 2);
  }
}

// Where a walk through rows up to `end` of `w` asks for bytes.
class WalkAhead {
 public:
  WalkAhead(const Matrix& w, uint32_t end, const NextRows& next)
      : w_(w), end_row_(end), next_(next), end_(RowWeights(w, end)) {
    if (next.w != nullptr) continues_ = RowWeights(*next.w, next.row);
    // Blocks of 8 rows of about that many bytes.
    const size_t block_bytes = w.cols * (w.dtype == DType::kSmoeQ2 ? size_t{2} : size_t{4});
    const size_t blocks = kScalesAheadBytes / (block_bytes + 1);
    scale_rows_ = static_cast<uint32_t>(8 * (blocks + 1));
    // Tiles are read for their scales before they are read for their weights.
    if (w.dtype == DType::kQ4Tiled) ahead_ = 8 * (w.cols / kGroup) * kTileBytes;
  }

  // While the bytes at p are worked on.
  const uint8_t* From(const uint8_t* p) const {
    p += ahead_;
    return p < end_ || continues_ == nullptr ? p : continues_ + (p - end_);
  }

  // While the block from `row` on is worked on. Scales come in short stretches, which the hardware
  // does not foresee: they are asked for early.
  void Scales(uint32_t row) const {
    row += scale_rows_;
    if (row < end_row_ || next_.w == nullptr) {
      PrefetchScales(w_, row);
    } else {
      PrefetchScales(*next_.w, next_.row + (row - end_row_));
    }
  }

 private:
  const Matrix& w_;
  uint32_t end_row_;
  NextRows next_;
  const uint8_t* end_;
  const uint8_t* continues_ = nullptr;
  size_t ahead_ = kAheadBytes;
  uint32_t scale_rows_;
};

}  // namespace moewe::kernels

#endif  // MOEWE_KERNELS_PREFETCH_H_
