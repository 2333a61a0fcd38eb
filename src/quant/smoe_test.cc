// The encodings of .smoe vaults against the golden vectors: zero groups, tails, overflow, half-way
// codes.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "golden.h"
#include "quant/codec.h"

namespace moewe::quant {
namespace {

class SmoeVectors : public testing::Test {
 protected:
  std::vector<uint8_t> Part(const nlohmann::json& range) const {
    const size_t begin = range.at(0);
    const size_t length = range.at(1);
    return {bytes_.begin() + static_cast<ptrdiff_t>(begin),
            bytes_.begin() + static_cast<ptrdiff_t>(begin + length)};
  }
  std::vector<float> Floats(const nlohmann::json& range) const {
    const std::vector<uint8_t> part = Part(range);
    std::vector<float> values(part.size() / sizeof(float));
    std::memcpy(values.data(), part.data(), part.size());
    return values;
  }

  const std::vector<uint8_t> bytes_ = golden::ReadBytes(golden::Path("smoe/quant/vectors.bin"));
  const nlohmann::json vectors_ =
      golden::ReadJson(golden::Path("smoe/quant/vectors.json")).at("vectors");
};

TEST_F(SmoeVectors, EncodeByteForByte) {
  ASSERT_FALSE(vectors_.empty());
  for (const auto& vector : vectors_) {
    SCOPED_TRACE(vector.at("name").get<std::string>() + " " + vector.at("bits").dump());
    const Codec& codec = *FindCodec(vector.at("bits") == 4 ? DType::kSmoeQ4 : DType::kSmoeQ2);
    const std::vector<uint8_t> encoded =
        Encode(codec, Floats(vector.at("input_f32")), {1, vector.at("n")});
    std::vector<uint8_t> expected = Part(vector.at("packed"));
    const std::vector<uint8_t> scales = Part(vector.at("scales_f16"));
    expected.insert(expected.end(), scales.begin(), scales.end());
    EXPECT_EQ(encoded, expected);
  }
}

TEST_F(SmoeVectors, DecodeBitForBit) {
  for (const auto& vector : vectors_) {
    SCOPED_TRACE(vector.at("name").get<std::string>() + " " + vector.at("bits").dump());
    std::vector<uint8_t> stored = Part(vector.at("packed"));
    const std::vector<uint8_t> scales = Part(vector.at("scales_f16"));
    stored.insert(stored.end(), scales.begin(), scales.end());
    const DType dtype = vector.at("bits") == 4 ? DType::kSmoeQ4 : DType::kSmoeQ2;
    const std::vector<float> decoded = Decode(dtype, stored, {1, vector.at("n")}, {});
    const std::vector<float> expected = Floats(vector.at("decoded_f32"));
    ASSERT_EQ(decoded.size(), expected.size());
    for (size_t i = 0; i < decoded.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(decoded[i]), std::bit_cast<uint32_t>(expected[i])) << i;
    }
  }
}

// A group that spans rows, and rows that end inside of one.
TEST(SmoeCodecTest, RowsDecodeAloneAsTogether) {
  for (const DType dtype : {DType::kSmoeQ4, DType::kSmoeQ2}) {
    for (const MatrixShape shape : {MatrixShape{7, 96}, MatrixShape{5, 33}, MatrixShape{130, 1}}) {
      std::vector<float> values(shape.rows * shape.cols);
      for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
      const std::vector<uint8_t> bytes = Encode(*FindCodec(dtype), values, shape);
      const std::vector<float> whole = Decode(dtype, bytes, shape, {});
      std::vector<float> row(shape.cols);
      for (uint64_t r = 0; r < shape.rows; ++r) {
        FindCodec(dtype)->decode_rows(bytes, shape, r, r + 1, row.data());
        EXPECT_TRUE(std::equal(row.begin(), row.end(),
                               whole.begin() + static_cast<ptrdiff_t>(r * shape.cols)));
      }
    }
  }
}

}  // namespace
}  // namespace moewe::quant
