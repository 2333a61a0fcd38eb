#include "kernels/product.h"

#include <algorithm>

#include "kernels/reference.h"

namespace moewe::kernels {
namespace {

void FloatRows(const Matrix& w, uint32_t row_begin, uint32_t row_end, const uint8_t* const* x,
               size_t n, float* const* y, float* scratch) {
  for (uint32_t row = row_begin; row < row_end; ++row) {
    reference::DecodeRow(w, row, scratch);
    for (size_t t = 0; t < n; ++t) {
      const double dot = reference::Dot(scratch, reinterpret_cast<const float*>(x[t]), w.cols);
      y[t][row - row_begin] = static_cast<float>(dot);
    }
  }
}

}  // namespace

size_t ProductScratchFloats(size_t cols) { return std::max(Int8ScratchFloats(cols), cols); }

void ComputeRows(const Matrix& w, Input input, uint32_t row_begin, uint32_t row_end,
                 const uint8_t* const* x, size_t n, float* const* y, float* scratch) {
  const Int8Kernels& int8 = Int8KernelsFor(ActiveIsa());
  switch (input) {
    case Input::kFloat:
      return FloatRows(w, row_begin, row_end, x, n, y, scratch);
    case Input::kNibbles:
      return int8.nibbles(w, row_begin, row_end, x, n, y, scratch);
    case Input::kBytes:
      return int8.bytes(w, row_begin, row_end, x, n, y, scratch);
  }
}

}  // namespace moewe::kernels
