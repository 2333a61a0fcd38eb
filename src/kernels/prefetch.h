// How the integer kernels ask the caches for weights when one activation row walks through a
// matrix.
#ifndef MOEWE_KERNELS_PREFETCH_H_
#define MOEWE_KERNELS_PREFETCH_H_

#include <cstddef>
#include <cstdint>

#include "kernels/layout.h"

namespace moewe::kernels {

// Bytes between a walk and what it fetches. Where the scales lie between the nibbles, the scale
// panels read a block of eight rows before the walk does: the distance is a block.
inline constexpr size_t kPrefetchBytes = 4096;
template <size_t kStride>
size_t PrefetchDistance(size_t groups) {
  return kStride == kTileBytes ? 8 * groups * kStride : kPrefetchBytes;
}

// Fetches what the scale panels of rows [row, row + 8) read beside the nibbles.
inline void PrefetchScales(const Matrix& w, uint32_t row) {
  const auto fetch = [](const uint8_t* p, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i);
  };
  if (row >= w.rows) return;
  if (w.dtype == DType::kQ4Block) {
    const size_t row_bytes = w.cols / kGroup * 2;
    fetch(Q4BlockLayout(w).scales + row * row_bytes, 8 * row_bytes);
  } else if (w.dtype == DType::kQ4tp) {
    const Q4tpLayout layout(w);
    fetch(layout.params + size_t{row} * 4, 32);
    fetch(layout.codes + row * layout.code_bytes, 8 * layout.code_bytes);
  }
}

}  // namespace moewe::kernels

#endif  // MOEWE_KERNELS_PREFETCH_H_
