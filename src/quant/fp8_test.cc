// FP8 bytes and the scales of blocks of them.
#include "quant/fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <vector>

#include "moewe/error.h"

namespace moewe::quant {
namespace {

constexpr MatrixShape kRagged{5, 7};

std::vector<uint8_t> BytesOf(const std::vector<float>& values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

TEST(Fp8, ValuesAreThoseOfE4M3) {
  EXPECT_EQ(Fp8ToF32(0x00), 0.0f);
  EXPECT_EQ(Fp8ToF32(0x01), 0x1p-9f);      // the least subnormal
  EXPECT_EQ(Fp8ToF32(0x07), 7 * 0x1p-9f);  // the largest
  EXPECT_EQ(Fp8ToF32(0x08), 0x1p-6f);      // the least normal
  EXPECT_EQ(Fp8ToF32(0x38), 1.0f);
  EXPECT_EQ(Fp8ToF32(0x39), 1.125f);
  EXPECT_EQ(Fp8ToF32(0xC4), -3.0f);
  EXPECT_EQ(Fp8ToF32(0x78), 256.0f);  // there is no infinity
  EXPECT_EQ(Fp8ToF32(0x7E), 448.0f);
  EXPECT_EQ(Fp8ToF32(0xFE), -448.0f);
  EXPECT_TRUE(std::signbit(Fp8ToF32(0x80)));
  std::set<float> distinct;
  for (int byte = 0; byte < 256; ++byte) {
    const float value = Fp8ToF32(static_cast<uint8_t>(byte));
    EXPECT_EQ(std::isnan(value), byte == 0x7F || byte == 0xFF) << byte;
    if (!std::isnan(value)) distinct.insert(value);
  }
  EXPECT_EQ(distinct.size(), 253u);  // both zeros are equal
}

// Blocks of 2 x 3 in a 5 x 7 matrix: the last ones are smaller.
TEST(Fp8, EveryBlockHasItsScale) {
  std::vector<uint8_t> bytes(35);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(0x30 + i % 16);
  std::vector<float> scales(9);
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = 0.1f + static_cast<float>(i) * 0.37f;
  const std::vector<uint8_t> stored = BytesOf(scales);
  const BlockScales blocks{DType::kF32, Bytes(stored), 2, 3};
  EXPECT_EQ(blocks.Grid(kRagged).rows, 3u);
  EXPECT_EQ(blocks.Grid(kRagged).cols, 3u);
  EXPECT_NO_THROW(CheckFp8Layout(Bytes(bytes), kRagged, blocks, {}));
  for (uint64_t begin = 0; begin < 5; ++begin) {  // wherever a worker begins
    std::vector<float> rows((5 - begin) * 7);
    DecodeFp8Rows(Bytes(bytes), kRagged, blocks, begin, 5, rows.data());
    for (uint64_t row = begin; row < 5; ++row) {
      for (uint64_t col = 0; col < 7; ++col) {
        const float expected = Fp8ToF32(bytes[row * 7 + col]) * scales[row / 2 * 3 + col / 3];
        EXPECT_EQ(rows[(row - begin) * 7 + col], expected) << row << " " << col;
      }
    }
  }
}

TEST(Fp8, ScalesMayBeBf16) {
  const std::vector<uint8_t> bytes = {0x38, 0x40};   // 1, 2
  const std::vector<uint8_t> stored = {0x40, 0x3F};  // 0.75
  const BlockScales blocks{DType::kBf16, Bytes(stored), 128, 128};
  float values[2];
  DecodeFp8Rows(Bytes(bytes), {1, 2}, blocks, 0, 1, values);
  EXPECT_EQ(values[0], 0.75f);
  EXPECT_EQ(values[1], 1.5f);
}

TEST(Fp8, FaultsAreNamed) {
  std::vector<uint8_t> bytes(35, 0x38);
  std::vector<float> scales(9, 1.0f);
  const auto check = [&](std::string* message) {
    const std::vector<uint8_t> stored = BytesOf(scales);
    try {
      CheckFp8Layout(Bytes(bytes), kRagged, {DType::kF32, Bytes(stored), 2, 3}, {"f", "w", 100});
      CheckFp8Values(Bytes(bytes), kRagged, {"f", "w", 100});
    } catch (const Error& error) {
      *message = error.message();
      EXPECT_EQ(error.where().field, "w");
      return error.code();
    }
    return ErrorCode::kInternal;
  };
  std::string message;
  bytes[8] = 0x7F;
  EXPECT_EQ(check(&message), ErrorCode::kParse);
  EXPECT_NE(message.find("[1, 1]"), std::string::npos) << message;
  bytes[8] = 0xFF;
  EXPECT_EQ(check(&message), ErrorCode::kParse);
  bytes[8] = 0x7E;
  EXPECT_EQ(check(&message), ErrorCode::kInternal);
  scales[5] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(check(&message), ErrorCode::kParse);
  EXPECT_NE(message.find("[1, 2]"), std::string::npos) << message;
  scales.pop_back();
  EXPECT_EQ(check(&message), ErrorCode::kBounds);
  scales.assign(9, 1.0f);
  bytes.pop_back();
  EXPECT_EQ(check(&message), ErrorCode::kBounds);
}

}  // namespace
}  // namespace moewe::quant
