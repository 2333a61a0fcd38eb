// The layouts whose length depends on the data, and the sign layouts: what their validation
// refuses, how single rows are found, and what the encoders promise.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "quant/codec.h"
#include "quant/vbit.h"

namespace moewe::quant {
namespace {

constexpr MatrixShape kShape{9, 64};

std::vector<float> RandomValues(MatrixShape shape, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  std::vector<float> values(shape.rows * shape.cols);
  for (uint64_t i = 0; i < values.size(); ++i) {
    // Rows of very different loudness, so that vbit allocates every width.
    values[i] = std::ldexp(normal(random), static_cast<int>(i / shape.cols % 6));
  }
  return values;
}

std::vector<uint8_t> Encoded(DType dtype, const EncodeOptions& options = {}) {
  return Encode(*FindCodec(dtype), RandomValues(kShape, 11), kShape, options);
}

std::optional<ErrorCode> Fault(DType dtype, const std::vector<uint8_t>& bytes) {
  try {
    FindCodec(dtype)->validate(bytes, kShape, {"f.cmf", "tensor 't'", 64});
    return std::nullopt;
  } catch (const Error& error) {
    EXPECT_EQ(error.where().field, "tensor 't'");
    return error.code();
  }
}

template <typename T>
std::vector<uint8_t> Patched(std::vector<uint8_t> bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
  return bytes;
}

TEST(VbitTest, WidthsThatDoNotExistAreRefused) {
  for (const DType dtype : {DType::kVbit, DType::kVbitRo}) {
    const std::vector<uint8_t> bytes = Encoded(dtype);
    for (const int width : {0, 1, 2, 7, 9, 16, 255}) {
      for (const size_t row : {size_t{0}, size_t{8}}) {
        EXPECT_EQ(Fault(dtype, Patched(bytes, row, static_cast<uint8_t>(width))),
                  ErrorCode::kBounds);
      }
    }
    // A width that exists, but then the rows end elsewhere.
    const auto other = static_cast<uint8_t>(bytes[4] == 8 ? 6 : 8);
    EXPECT_EQ(Fault(dtype, Patched(bytes, 4, other)), ErrorCode::kBounds);
  }
}

TEST(VbitTest, EveryEntryOfTheTableIsChecked) {
  const std::vector<uint8_t> bytes = Encoded(DType::kVbitRo);
  const size_t table = kShape.rows + kShape.rows * 2 * 2;
  for (size_t row = 0; row <= kShape.rows; ++row) {
    uint32_t offset = 0;
    std::memcpy(&offset, bytes.data() + table + 4 * row, sizeof(offset));
    for (const uint32_t wrong : {offset + 1, offset - 1, offset + 0x80000000u}) {
      EXPECT_EQ(Fault(DType::kVbitRo, Patched(bytes, table + 4 * row, wrong)), ErrorCode::kBounds)
          << row;
    }
  }
}

TEST(VbitTest, RowsAreFoundAlone) {
  const std::vector<uint8_t> plain = Encoded(DType::kVbit);
  const std::vector<uint8_t> with_table = Encoded(DType::kVbitRo);
  EXPECT_EQ(with_table.size(), plain.size() + 4 * (kShape.rows + 1));
  const std::vector<float> whole = Decode(DType::kVbit, plain, kShape, {});
  EXPECT_EQ(Decode(DType::kVbitRo, with_table, kShape, {}), whole);
  const std::vector<uint64_t> starts = VbitRowStarts(DType::kVbit, plain, kShape);
  const std::vector<uint64_t> table_starts = VbitRowStarts(DType::kVbitRo, with_table, kShape);
  EXPECT_EQ(starts.back(), plain.size());
  for (uint64_t row = 0; row < kShape.rows; ++row) {
    EXPECT_EQ(VbitRoRowStart(with_table, kShape, row), table_starts[row]);
    std::vector<float> values(kShape.cols);
    DecodeVbitRow(plain, kShape, row, starts[row], values.data());
    EXPECT_TRUE(std::equal(values.begin(), values.end(),
                           whole.begin() + static_cast<ptrdiff_t>(row * kShape.cols)));
  }
}

TEST(VbitTest, LouderRowsGetMoreBits) {
  const std::vector<float> amplitudes = {-6.0f, -5.0f, -4.0f, -3.0f, -2.0f, -1.0f, 0.0f};
  const std::vector<uint8_t> widths = AllocateVbit(amplitudes, 4.25f);
  EXPECT_TRUE(std::is_sorted(widths.begin(), widths.end()));
  EXPECT_EQ(widths.front(), 3);
  EXPECT_EQ(widths.back(), 8);
  EXPECT_EQ(AllocateVbit(std::vector<float>(5, -4.0f), 4.25f), std::vector<uint8_t>(5, 4));
  EXPECT_EQ(NearestVbitWidth(-100.0f), 3);
  EXPECT_EQ(NearestVbitWidth(3.5f), 3);  // the lower of two
  EXPECT_EQ(NearestVbitWidth(5.5f), 5);
  EXPECT_EQ(NearestVbitWidth(7.0f), 6);
  EXPECT_EQ(NearestVbitWidth(100.0f), 8);
}

TEST(VbitTest, ErrorIsAtMostHalfAStepOfTheRowsWidth) {
  const std::vector<float> values = RandomValues(kShape, 11);
  const std::vector<uint8_t> bytes = Encoded(DType::kVbit);
  const std::vector<float> decoded = Decode(DType::kVbit, bytes, kShape, {});
  for (uint64_t g = 0; g < kShape.rows * 2; ++g) {
    float largest = 0.0f;
    for (uint64_t i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(values[g * 32 + i]));
    const float middle = static_cast<float>((1 << (bytes[g / 2] - 1)) - 1);
    const float step = largest / middle;
    for (uint64_t i = 0; i < 32; ++i) {
      EXPECT_LE(std::fabs(values[g * 32 + i] - decoded[g * 32 + i]), step * 0.51f) << g;
    }
  }
}

TEST(VbitTest, WidthsMayComeFromElsewhere) {
  const std::vector<uint8_t> widths = {3, 4, 5, 6, 8, 8, 6, 5, 3};
  EncodeOptions options;
  options.row_bits = widths;
  const std::vector<uint8_t> bytes = Encoded(DType::kVbit, options);
  EXPECT_TRUE(std::equal(widths.begin(), widths.end(), bytes.begin()));
  EXPECT_EQ(Fault(DType::kVbit, bytes), std::nullopt);
}

constexpr size_t kSignTiles = 9 * 2 * 6;

TEST(Q1sTest, OverlayIsChecked) {
  const std::vector<uint8_t> bytes = Encoded(DType::kQ1s);
  uint32_t count = 0;
  std::memcpy(&count, bytes.data() + kSignTiles, sizeof(count));
  ASSERT_EQ(count, 6u);  // one percent of 576
  const size_t entries = kSignTiles + 4;
  EXPECT_EQ(Fault(DType::kQ1s, bytes), std::nullopt);
  EXPECT_EQ(Fault(DType::kQ1s, Patched(bytes, kSignTiles, count + 1)), ErrorCode::kBounds);
  EXPECT_EQ(Fault(DType::kQ1s, Patched(bytes, kSignTiles, count - 1)), ErrorCode::kBounds);
  EXPECT_EQ(Fault(DType::kQ1s, Patched(bytes, kSignTiles, ~0u)), ErrorCode::kBounds);
  EXPECT_EQ(Fault(DType::kQ1s, Patched(bytes, entries + 5 * 6, 576u)), ErrorCode::kBounds);
  EXPECT_EQ(Fault(DType::kQ1s, Patched(bytes, entries, ~0u)), ErrorCode::kBounds);
  uint32_t second = 0;
  std::memcpy(&second, bytes.data() + entries + 6, sizeof(second));
  EXPECT_EQ(Fault(DType::kQ1s, Patched(bytes, entries, second)), ErrorCode::kParse);
  EXPECT_EQ(Fault(DType::kQ1s, Patched(bytes, entries + 2 * 6, 0u)), ErrorCode::kParse);
}

TEST(Q1sTest, KeepSaysHowManyStayExact) {
  const std::vector<float> values = RandomValues(kShape, 11);
  size_t before = 0;
  for (const double keep : {0.0, 0.01, 0.1, 0.25, 0.9}) {
    EncodeOptions options;
    options.keep = keep;
    const std::vector<uint8_t> bytes = Encoded(DType::kQ1s, options);
    EXPECT_EQ(Fault(DType::kQ1s, bytes), std::nullopt);
    const size_t count = (bytes.size() - kSignTiles - 4) / 6;
    EXPECT_EQ(count, static_cast<size_t>(std::round(576 * std::min(keep, 0.25))));
    EXPECT_GE(count, before);
    before = count;
    const std::vector<float> decoded = Decode(DType::kQ1s, bytes, kShape, {});
    size_t exact = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      exact += std::fabs(values[i] - decoded[i]) <= std::fabs(values[i]) * 0x1p-11f;
    }
    EXPECT_GE(exact, count);
  }
}

TEST(Q1sTest, NothingKeptIsDiffusedQ1) {
  EncodeOptions options;
  options.keep = 0.0;
  options.diffuse = true;
  std::vector<uint8_t> expected = Encoded(DType::kQ1, options);
  expected.resize(expected.size() + 4);  // a count of zero
  EXPECT_EQ(Encoded(DType::kQ1s, options), expected);
}

TEST(Q1Test, TwoLevelWeightsAreExact) {
  std::vector<float> values(kShape.rows * kShape.cols);
  std::mt19937 random(3);
  for (size_t i = 0; i < values.size(); ++i) {
    const float level = std::ldexp(1.0f, -static_cast<int>(i / 32));
    values[i] = (random() & 1) != 0 ? level : -level;
  }
  for (uint64_t g = 15; g < kShape.rows * 2; ++g) {  // below the least scale nothing is exact
    for (uint64_t i = 0; i < 32; ++i) values[g * 32 + i] = 1.0f;
  }
  std::vector<uint8_t> bytes;
  FindCodec(DType::kQ1)->encode(values, kShape, &bytes);
  EXPECT_EQ(Decode(DType::kQ1, bytes, kShape, {}), values);
}

TEST(Q1Test, DiffusionKeepsTheSumOfARow) {
  const std::vector<float> values = RandomValues(kShape, 11);
  EncodeOptions options;
  options.diffuse = true;
  const auto worst = [&](const std::vector<uint8_t>& bytes) {
    const std::vector<float> decoded = Decode(DType::kQ1, bytes, kShape, {});
    double largest = 0.0;
    for (uint64_t row = 0; row < kShape.rows; ++row) {
      double miss = 0.0;
      double level = 0.0;
      for (uint64_t i = 0; i < kShape.cols; ++i) {
        miss += static_cast<double>(values[row * kShape.cols + i]) -
                static_cast<double>(decoded[row * kShape.cols + i]);
        level = std::max(level, std::fabs(static_cast<double>(decoded[row * kShape.cols + i])));
      }
      largest = std::max(largest, std::fabs(miss) / level);
    }
    return largest;
  };
  EXPECT_GT(worst(Encoded(DType::kQ1)), 3.0);
  EXPECT_LT(worst(Encoded(DType::kQ1, options)), 3.0);
}

TEST(Q1tTest, OverlayIsChecked) {
  // Two entries in row 3, one in row 8.
  std::vector<uint8_t> bytes = Encoded(DType::kQ1t);
  constexpr size_t kPointers = 9 * 2 * 9;
  for (size_t row = 0; row <= 9; ++row) {
    bytes = Patched(bytes, kPointers + 4 * row, row <= 3 ? 0u : row <= 8 ? 2u : 3u);
  }
  const size_t entries = bytes.size();
  bytes.resize(entries + 3 * 4);
  bytes = Patched(bytes, entries, uint16_t{63});
  bytes = Patched(bytes, entries + 2, uint16_t{0x3C00});
  bytes = Patched(bytes, entries + 8, uint16_t{5});
  bytes = Patched(bytes, entries + 10, uint16_t{0xC000});
  ASSERT_EQ(Fault(DType::kQ1t, bytes), std::nullopt);
  const std::vector<float> decoded = Decode(DType::kQ1t, bytes, kShape, {});
  EXPECT_EQ(decoded[3 * 64 + 63], 1.0f);
  EXPECT_EQ(decoded[8 * 64 + 5], -2.0f);
  EXPECT_EQ(Fault(DType::kQ1t, Patched(bytes, kPointers, 1u)), ErrorCode::kParse);
  EXPECT_EQ(Fault(DType::kQ1t, Patched(bytes, kPointers + 4 * 6, 0u)), ErrorCode::kParse);
  EXPECT_EQ(Fault(DType::kQ1t, Patched(bytes, kPointers + 4 * 9, 4u)), ErrorCode::kBounds);
  EXPECT_EQ(Fault(DType::kQ1t, Patched(bytes, kPointers + 4 * 9, ~0u)), ErrorCode::kBounds);
  EXPECT_EQ(Fault(DType::kQ1t, Patched(bytes, entries + 4, uint16_t{64})), ErrorCode::kBounds);
}

TEST(Q1tTest, TernaryWeightsAreExact) {
  std::vector<float> values(kShape.rows * kShape.cols);
  std::mt19937 random(5);
  for (float& value : values)
    value = 0.25f * static_cast<float>(static_cast<int>(random() % 3) - 1);
  std::vector<uint8_t> bytes;
  FindCodec(DType::kQ1t)->encode(values, kShape, &bytes);
  const std::vector<float> decoded = Decode(DType::kQ1t, bytes, kShape, {});
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(decoded[i], values[i]) << i;
}

// Whatever bytes come: refused, or decoded without leaving them (the sanitizers watch).
TEST(VariableLengthTest, DamageIsRefusedOrHarmless) {
  std::mt19937 random(7);
  for (const DType dtype : {DType::kVbit, DType::kVbitRo, DType::kQ1s, DType::kQ1t}) {
    const std::vector<uint8_t> good = Encoded(dtype);
    int refused = 0;
    for (int trial = 0; trial < 3000; ++trial) {
      std::vector<uint8_t> bytes = good;
      if (random() % 4 == 0) bytes.resize(random() % (good.size() + 8));
      for (uint32_t flips = random() % 4; flips-- > 0 && !bytes.empty();) {
        bytes[random() % bytes.size()] = static_cast<uint8_t>(random());
      }
      if (Fault(dtype, bytes)) {
        ++refused;
        continue;
      }
      EXPECT_EQ(Decode(dtype, bytes, kShape, {}).size(), kShape.rows * kShape.cols);
    }
    EXPECT_GT(refused, 100) << DTypeName(dtype);
    EXPECT_LT(refused, 2900) << DTypeName(dtype);
  }
}

}  // namespace
}  // namespace moewe::quant
