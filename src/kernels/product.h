// A block of rows of one weight matrix times a block of activation rows, by the kernels of this
// CPU.
#ifndef MOEWE_KERNELS_PRODUCT_H_
#define MOEWE_KERNELS_PRODUCT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/compute.h"
#include "kernels/int8.h"

namespace moewe::kernels {

// Activation rows that go through a matrix together: about what a core's L2 cache holds beside the
// weights.
inline constexpr size_t kTokenBlock = 64;

// Floats of scratch that ComputeRows needs for a matrix of this width; 64-byte aligned.
size_t ProductScratchFloats(size_t cols);

// y[t][r - row_begin] = row r of w times x[t], for r in [row_begin, row_end) and t in [0, n). x[t]
// is a PreparedRow, or floats where `input` is kFloat. `next` are the rows that the thread computes
// afterwards, if it knows.
void ComputeRows(const Matrix& w, Input input, uint32_t row_begin, uint32_t row_end,
                 const uint8_t* const* x, size_t n, float* const* y, float* scratch,
                 const NextRows& next = {});

}  // namespace moewe::kernels

#endif  // MOEWE_KERNELS_PRODUCT_H_
