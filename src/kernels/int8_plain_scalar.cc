// The scalar definition of the integer path for dtypes whose weights are decoded row by row: vbit,
// vbit_ro, q1, q1s, q1t.
#include <cmath>

#include "kernels/int8.h"
#include "kernels/layout.h"
#include "kernels/overlay.h"

namespace moewe::kernels {
namespace {

// Integer weights of group g of a row: code - L for vbit, -1, 0 or 1 for the others.
void GroupWeights(const Matrix& w, uint32_t row, size_t g, int32_t* out) {
  const size_t groups = w.cols / kGroup;
  if (w.dtype == DType::kVbit || w.dtype == DType::kVbitRo) {
    const VbitLayout layout(w);
    const uint32_t width = layout.widths[row];
    const uint8_t* packed = layout.Row(row) + g * 4 * width;
    for (size_t i = 0; i < kGroup; ++i) {
      uint32_t code = 0;
      for (size_t bit = i * width; bit < (i + 1) * width; ++bit) {
        code = code << 1 | (packed[bit / 8] >> (7 - bit % 8) & 1u);
      }
      out[i] = static_cast<int32_t>(code) - ((1 << (width - 1)) - 1);
    }
  } else if (w.dtype == DType::kQ1t) {
    const uint8_t* tile = w.bytes.data() + (row * groups + g) * kTernaryTileBytes;
    for (size_t i = 0; i < kGroup; ++i) out[i] = TernaryDigit(tile, i);
  } else {
    const uint8_t* tile = w.bytes.data() + (row * groups + g) * kSignTileBytes;
    for (size_t i = 0; i < kGroup; ++i) out[i] = (tile[2 + i / 8] >> (i % 8) & 1) != 0 ? 1 : -1;
  }
}

float GroupScale(const Matrix& w, uint32_t row, size_t g) {
  const size_t group = row * size_t{w.cols / kGroup} + g;
  if (w.dtype == DType::kVbit || w.dtype == DType::kVbitRo) {
    return LoadF16(VbitLayout(w).scales + group * 2);
  }
  const size_t tile_bytes = w.dtype == DType::kQ1t ? kTernaryTileBytes : kSignTileBytes;
  return LoadF16(w.bytes.data() + group * tile_bytes);
}

}  // namespace

void PlainScalar(const Matrix& w, uint32_t row_begin, uint32_t row_end, const uint8_t* const* x,
                 size_t n, float* const* y, float*, const NextRows&) {
  const size_t padded = PreparedRow::PaddedGroups(w.cols);
  Overlay overlay(w, row_begin);
  for (uint32_t row = row_begin; row < row_end; ++row) {
    for (size_t t = 0; t < n; ++t) {
      const auto* q = reinterpret_cast<const int8_t*>(x[t]);
      float c[4] = {};
      for (size_t g = 0; g < w.cols / kGroup; ++g) {
        int32_t weights[kGroup];
        GroupWeights(w, row, g, weights);
        int32_t sum = 0;
        for (size_t i = 0; i < kGroup; ++i) sum += weights[i] * q[g * kGroup + i];
        float dx;
        std::memcpy(&dx, x[t] + padded * 32 + g * 4, 4);
        c[g % 4] = std::fma(static_cast<float>(sum), GroupScale(w, row, g) * dx, c[g % 4]);
      }
      y[t][row - row_begin] = (c[0] + c[2]) + (c[1] + c[3]);
    }
    overlay.ForRow(row, [&](size_t col, float delta) {
      for (size_t t = 0; t < n; ++t) {
        float& out = y[t][row - row_begin];
        out = AddOverlay(out, delta, x[t], padded, col);
      }
    });
  }
}

}  // namespace moewe::kernels
