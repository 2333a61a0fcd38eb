// Gathered rows and columns decode to the same numbers as those of the whole matrix.
#include "quant/gather.h"

#include <gtest/gtest.h>

#include <random>

namespace moewe::quant {
namespace {

std::vector<float> RandomValues(size_t n) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

TEST(GatherTest, RowsAreTheSameNumbers) {
  const MatrixShape shape{37, 96};
  const std::vector<uint32_t> rows{0, 3, 4, 5, 20, 36};
  int gathered = 0;
  for (const Codec* codec : AllCodecs()) {
    if (codec->start == nullptr) continue;
    const auto bytes = Encode(*codec, RandomValues(shape.rows * shape.cols), shape);
    const auto result = GatherRows(codec->dtype, bytes, shape, rows);
    ASSERT_EQ(result.has_value(), CanGatherRows(codec->dtype, shape));
    if (!result) continue;
    ++gathered;
    const auto whole = Decode(codec->dtype, bytes, shape, {});
    const auto part = Decode(codec->dtype, *result, {rows.size(), shape.cols}, {});
    for (size_t r = 0; r < rows.size(); ++r) {
      for (size_t c = 0; c < shape.cols; ++c) {
        ASSERT_EQ(part[r * shape.cols + c], whole[rows[r] * shape.cols + c])
            << DTypeName(codec->dtype) << " " << r << " " << c;
      }
    }
  }
  EXPECT_EQ(gathered, 11);  // all but q1s and q1t, of those that hold numbers
  EXPECT_FALSE(CanGatherRows(DType::kQ4Block, {4, 20}));
}

TEST(GatherTest, ColumnsAreTheSameNumbers) {
  const MatrixShape shape{5, 64};
  const std::vector<uint32_t> columns{1, 2, 31, 33, 63};
  int gathered = 0;
  for (const Codec* codec : AllCodecs()) {
    if (codec->start == nullptr) continue;
    const auto bytes = Encode(*codec, RandomValues(shape.rows * shape.cols), shape);
    const auto result = GatherColumns(codec->dtype, bytes, shape, columns);
    ASSERT_EQ(result.has_value(), CanGatherColumns(codec->dtype, shape));
    if (!result) continue;
    ++gathered;
    const auto whole = Decode(codec->dtype, bytes, shape, {});
    const auto part = Decode(codec->dtype, *result, {shape.rows, columns.size()}, {});
    for (size_t r = 0; r < shape.rows; ++r) {
      for (size_t c = 0; c < columns.size(); ++c) {
        ASSERT_EQ(part[r * columns.size() + c], whole[r * shape.cols + columns[c]])
            << DTypeName(codec->dtype);
      }
    }
  }
  EXPECT_EQ(gathered, 5);
}

}  // namespace
}  // namespace moewe::quant
