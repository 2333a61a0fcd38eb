#include "kernels/product.h"

#include <algorithm>

#include "kernels/float_product.h"

namespace moewe::kernels {

size_t ProductScratchFloats(size_t cols) {
  return std::max(Int8ScratchFloats(cols), FloatScratchFloats(cols));
}

void ComputeRows(const Matrix& w, Input input, uint32_t row_begin, uint32_t row_end,
                 const uint8_t* const* x, size_t n, float* const* y, float* scratch,
                 const NextRows& next) {
  const Int8Kernels& int8 = Int8KernelsFor(ActiveIsa());
  switch (input) {
    case Input::kFloat:
      return FloatProduct(w, row_begin, row_end, x, n, y, scratch);
    case Input::kNibbles:
    case Input::kOddNibbles:
    case Input::kOddCrumbs:
    case Input::kBytes:
    case Input::kPlain:
      return int8.For(input)(w, row_begin, row_end, x, n, y, scratch, next);
  }
}

}  // namespace moewe::kernels
