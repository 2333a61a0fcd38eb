// Products in f32: float weights, and quantized ones decoded on the way.
#ifndef MOEWE_KERNELS_FLOAT_PRODUCT_H_
#define MOEWE_KERNELS_FLOAT_PRODUCT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/compute.h"

namespace moewe::kernels {

// Rows of a matrix that are decoded together.
inline constexpr size_t kTileRows = 4;

// Floats of scratch that the functions below need for a matrix of this width.
size_t FloatScratchFloats(size_t cols);

// y[t][r - row_begin] = row r of w times the floats x[t], for r in [row_begin, row_end) and t in
// [0, n). Lane i of an accumulator sums elements i, i + lanes, ... with fused multiply-adds, so a
// value depends on the instruction set but on nothing else.
void FloatProduct(const Matrix& w, uint32_t row_begin, uint32_t row_end, const uint8_t* const* x,
                  size_t n, float* const* y, float* scratch);

// Rows [row_begin, row_end) as f32 into out[row_end - row_begin][cols]; bit for bit what the
// dtype's codec gives.
void DecodeRows(const Matrix& w, uint32_t row_begin, uint32_t row_end, float* out);

}  // namespace moewe::kernels

#endif  // MOEWE_KERNELS_FLOAT_PRODUCT_H_
