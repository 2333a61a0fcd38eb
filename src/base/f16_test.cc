#include "base/f16.h"

#include <cmath>
#include <limits>

#include "golden.h"

namespace moewe {
namespace {

// The value of a half by the definition, computed another way than F16ToF32 does it.
float ByDefinition(uint32_t half) {
  const float sign = (half & 0x8000u) != 0 ? -1.0f : 1.0f;
  const int exponent = static_cast<int>((half >> 10) & 31u);
  const auto mantissa = static_cast<float>(half & 1023u);
  if (exponent == 31) return mantissa != 0 ? std::nanf("") : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024.0f + mantissa, exponent - 25);
}

TEST(F16, EveryHalfDecodesByDefinitionAndComesBack) {
  for (uint32_t half = 0; half < 65536; ++half) {
    const float value = F16ToF32(static_cast<uint16_t>(half));
    const float expected = ByDefinition(half);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value)) << half;
      EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16(value)))) << half;
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(value), std::bit_cast<uint32_t>(expected)) << half;
      EXPECT_EQ(F32ToF16(value), half);
    }
  }
}

TEST(F16, RoundsAsTheWritersDo) {
  EXPECT_EQ(F32ToF16(std::ldexp(1.0f, -25)), 0x0001);  // half up
  EXPECT_EQ(F32ToF16(std::nextafter(std::ldexp(1.0f, -25), 0.0f)), 0x0000);
  EXPECT_EQ(F32ToF16(-std::ldexp(1.0f, -26)), 0x8000);
  EXPECT_EQ(F32ToF16(std::ldexp(2.5f, -24)), 0x0003);         // a tie between subnormals goes up
  EXPECT_EQ(F32ToF16(1.0f + std::ldexp(1.0f, -11)), 0x3C00);  // a tie between normals goes to even
  EXPECT_EQ(F32ToF16(1.0f + std::ldexp(3.0f, -11)), 0x3C02);
  EXPECT_EQ(F32ToF16(65519.0f), 0x7BFF);
  EXPECT_EQ(F32ToF16(65520.0f), 0x7C00);
  EXPECT_EQ(F32ToF16(-1e30f), 0xFC00);
}

TEST(Bf16, EveryValueComesBackAndTiesGoToEven) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = Bf16ToF32(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(Bf16ToF32(F32ToBf16(value))));
    } else {
      EXPECT_EQ(F32ToBf16(value), bits);
    }
  }
  EXPECT_EQ(F32ToBf16(std::bit_cast<float>(0x3F808000u)), 0x3F80);
  EXPECT_EQ(F32ToBf16(std::bit_cast<float>(0x3F818000u)), 0x3F82);
  EXPECT_EQ(F32ToBf16(std::numeric_limits<float>::max()), 0x7F80);
}

}  // namespace
}  // namespace moewe
