#include "kernels/ladder.h"

#include <cmath>
#include <vector>

#include "base/f16.h"

namespace moewe::kernels {

const float* Exp2OfF16() {
  // A table, because exactness matters more than 256 KiB, of which a matrix touches a few lines.
  // Computed in double and rounded: correctly rounded f32, unlike some exp2f.
  static const std::vector<float> table = [] {
    std::vector<float> values(65536);
    for (uint32_t bits = 0; bits < values.size(); ++bits) {
      values[bits] =
          static_cast<float>(std::exp2(static_cast<double>(F16ToF32(static_cast<uint16_t>(bits)))));
    }
    return values;
  }();
  return table.data();
}

}  // namespace moewe::kernels
