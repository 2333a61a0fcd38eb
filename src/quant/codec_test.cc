// Codecs against the golden payloads, and the properties that every codec has.
#include "quant/codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/hash64.h"
#include "golden.h"

namespace moewe::quant {
namespace {

using nlohmann::json;

std::vector<float> RandomValues(uint64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// The option that made a variant is in its name.
EncodeOptions OptionsOf(const std::string& name) {
  EncodeOptions options;
  options.search_scales = name.find("nosearch") == std::string::npos;
  options.diffuse = name.find("q1p") != std::string::npos;
  if (const size_t at = name.find("_mb"); at != std::string::npos) {
    options.mean_bits = std::stof(name.substr(at + 3));
  }
  if (const size_t at = name.find("_keep"); at != std::string::npos) {
    options.keep = std::stod("0." + name.substr(at + 5));
  }
  return options;
}

std::vector<json> GoldenEntries() {
  return golden::ReadJson(golden::Path("cmf/codecs/manifest.json"))
      .at("entries")
      .get<std::vector<json>>();
}

class CodecGolden : public testing::TestWithParam<json> {
 protected:
  std::filesystem::path File(const char* key) const {
    return golden::Path("cmf/codecs/" + GetParam().at(key).get<std::string>());
  }
};

TEST_P(CodecGolden, DecodesAndEncodesBitForBit) {
  const json& entry = GetParam();
  const std::optional<DType> dtype = DTypeFromId(entry.at("dtype_id"));
  ASSERT_TRUE(dtype);
  EXPECT_EQ(DTypeName(*dtype), entry.at("dtype").get<std::string>());
  const Codec* codec = FindCodec(*dtype);
  ASSERT_NE(codec, nullptr);

  const MatrixShape shape{entry.at("rows"), entry.at("cols")};
  const std::vector<uint8_t> encoded = golden::ReadBytes(File("encoded"));
  EXPECT_EQ(HashToHex(HashBytes(encoded)), entry.at("hash64").get<std::string>());
  EXPECT_EQ(encoded.size(), entry.at("nbytes"));

  // Compared as bits: NaNs and signed zeros count.
  const std::vector<float> decoded = Decode(*dtype, encoded, shape, {});
  const std::vector<float> expected = golden::ReadF32(File("decoded"));
  ASSERT_EQ(decoded.size(), expected.size());
  for (size_t i = 0; i < decoded.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(decoded[i]), std::bit_cast<uint32_t>(expected[i])) << i;
  }

  if (entry.at("input").is_null()) return;
  ASSERT_NE(codec->start, nullptr);
  const std::vector<uint8_t> ours =
      Encode(*codec, golden::ReadF32(File("input")), shape, OptionsOf(entry.at("name")));
  ASSERT_EQ(ours.size(), encoded.size());
  for (size_t i = 0; i < ours.size(); ++i) ASSERT_EQ(ours[i], encoded[i]) << "byte " << i;
}

INSTANTIATE_TEST_SUITE_P(Manifest, CodecGolden, testing::ValuesIn(GoldenEntries()),
                         [](const auto& param_info) {
                           std::string name =
                               param_info.param.at("name").template get<std::string>();
                           for (char& c : name) c = std::isalnum(static_cast<uint8_t>(c)) ? c : '_';
                           return name;
                         });

class EveryCodec : public testing::TestWithParam<const Codec*> {
 protected:
  const Codec& codec() const { return *GetParam(); }

  std::vector<uint8_t> Encode(MatrixShape shape) const {
    std::vector<uint8_t> bytes;
    if (codec().encode == nullptr) {
      bytes.assign(codec().encoded_size(shape).value(), 7);
    } else {
      codec().encode(RandomValues(shape.rows * shape.cols, 1), shape, &bytes);
    }
    return bytes;
  }
};

TEST_P(EveryCodec, RefusesOtherSizes) {
  for (const MatrixShape shape : {MatrixShape{1, 32}, MatrixShape{5, 96}, MatrixShape{300, 64}}) {
    std::vector<uint8_t> bytes = Encode(shape);
    ASSERT_NO_THROW(codec().validate(bytes, shape, {}));
    if (codec().encoded_size(shape)) {
      EXPECT_EQ(*codec().encoded_size(shape), bytes.size());
    }
    const auto expect_bounds = [&](const std::vector<uint8_t>& wrong) {
      try {
        codec().validate(wrong, shape, {"f.cmf", "directory[0].nbytes", 40});
        ADD_FAILURE() << wrong.size() << " of " << bytes.size() << " bytes were accepted";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kBounds);
        EXPECT_EQ(error.where().field, "directory[0].nbytes");
      }
    };
    std::vector<uint8_t> longer = bytes;
    longer.push_back(0);
    expect_bounds(longer);
    bytes.pop_back();
    expect_bounds(bytes);
    expect_bounds({});
  }
}

TEST_P(EveryCodec, ShapesThatOverflowHaveNoSize) {
  constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();
  constexpr uint64_t kOne = 1;
  for (const MatrixShape shape : {MatrixShape{kHuge, kHuge}, MatrixShape{kHuge / 64, 128},
                                  MatrixShape{kHuge, 32}, MatrixShape{kOne << 59, 32}}) {
    EXPECT_FALSE(codec().encoded_size(shape)) << shape.rows << " x " << shape.cols;
    EXPECT_THROW(codec().validate(std::vector<uint8_t>(64), shape, {}), Error);
  }
  // The elements fit, some layouts' bytes do not; in none may the size wrap to something small.
  for (const MatrixShape shape : {MatrixShape{kOne << 58, 32}, MatrixShape{kHuge, 1},
                                  MatrixShape{kHuge / 32, 32}, MatrixShape{1, kHuge - 31}}) {
    const std::optional<uint64_t> size = codec().encoded_size(shape);
    if (size) {
      EXPECT_GT(*size, kOne << 59) << shape.rows << " x " << shape.cols;
    }
    EXPECT_THROW(codec().validate(std::vector<uint8_t>(64), shape, {}), Error);
  }
}

TEST_P(EveryCodec, RangesOfRowsAreTheWhole) {
  for (const MatrixShape shape : {MatrixShape{7, 64}, MatrixShape{33, 160}, MatrixShape{3, 45}}) {
    if (!codec().holds(shape, 2)) continue;
    const std::vector<uint8_t> bytes = Encode(shape);
    const std::vector<float> whole = Decode(codec().dtype, bytes, shape, {});
    for (uint64_t begin = 0; begin <= shape.rows; ++begin) {
      for (uint64_t end = begin; end <= std::min(shape.rows, begin + 5); ++end) {
        std::vector<float> part((end - begin) * shape.cols);
        codec().decode_rows(bytes, shape, begin, end, part.data());
        EXPECT_TRUE(std::equal(part.begin(), part.end(),
                               whole.begin() + static_cast<ptrdiff_t>(begin * shape.cols)))
            << begin << ".." << end;
      }
    }
  }
}

TEST_P(EveryCodec, EncodingInPiecesIsTheWhole) {
  if (codec().start == nullptr) GTEST_SKIP() << "not written";
  for (const MatrixShape shape : {MatrixShape{600, 32}, MatrixShape{70, 96}, MatrixShape{97, 45}}) {
    if (!codec().holds(shape, 2)) continue;
    const std::vector<float> values = RandomValues(shape.rows * shape.cols, 3);
    std::vector<uint8_t> whole;
    codec().encode(values, shape, &whole);
    // From the last block to the first: no block may rely on the one before it.
    const auto for_blocks = [&](uint64_t block_rows, const auto& use) {
      for (uint64_t left = (shape.rows + block_rows - 1) / block_rows; left-- > 0;) {
        const uint64_t row = left * block_rows;
        use(values.data() + row * shape.cols, row, std::min(row + block_rows, shape.rows));
      }
    };
    const std::unique_ptr<Encoding> encoding = codec().start(shape, {});
    for (int scan = 0; scan < encoding->scans(); ++scan) {
      for_blocks(kScanRows, [&](const float* rows, uint64_t begin, uint64_t end) {
        encoding->Scan(scan, rows, begin, end);
      });
      encoding->EndScan(scan);
    }
    ASSERT_EQ(encoding->size(), whole.size());
    std::vector<uint8_t> pieces(whole.size());
    encoding->Begin(pieces.data());
    for_blocks(kEncodeRowAlign, [&](const float* rows, uint64_t begin, uint64_t end) {
      encoding->EncodeRows(rows, begin, end, pieces.data());
    });
    EXPECT_EQ(pieces, whole);
  }
}

// The error that each layout promises for weights of one magnitude: half a step of its widest
// scale.
TEST_P(EveryCodec, ErrorIsAtMostHalfAStep) {
  if (codec().encode == nullptr) GTEST_SKIP() << "not written";
  const MatrixShape shape{40, 128};
  const DType dtype = codec().dtype;
  if (!codec().encoded_size(shape) || dtype == DType::kQ1 || dtype == DType::kSmoeQ2) {
    GTEST_SKIP() << "the error depends on the allocation, or on the weights";
  }
  const std::vector<float> values = RandomValues(shape.rows * shape.cols, 5);
  std::vector<uint8_t> bytes;
  codec().encode(values, shape, &bytes);
  const std::vector<float> decoded = Decode(codec().dtype, bytes, shape, {});
  float largest = 0.0f;
  for (float value : values) largest = std::max(largest, std::fabs(value));
  const double levels = static_cast<double>(bytes.size()) / static_cast<double>(values.size());
  // 4-bit layouts: absmax / 7 / 2, and q4tp may take a rung above; 8 bits and more: absmax / 127.
  const float bound = levels < 1.0 ? largest / 7.0f : largest / 100.0f;
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_LE(std::fabs(values[i] - decoded[i]), bound) << i;
  }
}

TEST_P(EveryCodec, HoldsSaysWhatTheLayoutCan) {
  const DType dtype = codec().dtype;
  const bool grouped = dtype == DType::kVbit || (dtype >= DType::kVbitRo && dtype <= DType::kQ4tp);
  const bool matrix_only = grouped || dtype == DType::kQ8Row || dtype == DType::kQ82f;
  EXPECT_TRUE(codec().holds({4, 64}, 2));
  EXPECT_EQ(codec().holds({1, 64}, 1), !matrix_only);
  EXPECT_EQ(codec().holds({6, 64}, 3), !matrix_only);
  EXPECT_EQ(codec().holds({4, 45}, 2), !grouped);
  EXPECT_EQ(codec().encoded_size({4, 45}).has_value(), !grouped);
}

TEST_P(EveryCodec, ZerosStayZeros) {
  if (codec().encode == nullptr) GTEST_SKIP() << "not written";
  if (codec().dtype == DType::kQ1 || codec().dtype == DType::kQ1s) GTEST_SKIP() << "signs only";
  if (!IsCmfDType(codec().dtype)) GTEST_SKIP() << "no level for zero";
  const MatrixShape shape{3, 64};
  std::vector<float> values(shape.rows * shape.cols, 0.0f);
  for (uint64_t i = 0; i < shape.cols; ++i) values[2 * shape.cols + i] = i < 32 ? -0.0f : 1e-3f;
  std::vector<uint8_t> bytes;
  codec().encode(values, shape, &bytes);
  const std::vector<float> decoded = Decode(codec().dtype, bytes, shape, {});
  for (uint64_t i = 0; i < 2 * shape.cols + 32; ++i) EXPECT_EQ(decoded[i], 0.0f) << i;
}

// Infinities, NaN and the extremes of f32 mean nothing in a quantized layout, but must neither be
// undefined behaviour (the sanitizers run this) nor make an encoding that does not validate.
TEST_P(EveryCodec, SurvivesExtremeValues) {
  if (codec().encode == nullptr) GTEST_SKIP() << "not written";
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kMax = std::numeric_limits<float>::max();
  const MatrixShape shape{4, 64};
  std::vector<float> values(shape.rows * shape.cols);
  for (uint64_t i = 0; i < shape.cols; ++i) {
    values[i] = i % 2 == 0 ? kInfinity : -1.0f;
    values[shape.cols + i] = i == 5 ? std::numeric_limits<float>::quiet_NaN() : 0.5f;
    values[2 * shape.cols + i] = i % 2 == 0 ? kMax : -kMax;
    values[3 * shape.cols + i] = 1e-40f;
  }
  std::vector<uint8_t> bytes;
  codec().encode(values, shape, &bytes);
  EXPECT_NO_THROW(Decode(codec().dtype, bytes, shape, {}));
}

INSTANTIATE_TEST_SUITE_P(Table, EveryCodec,
                         testing::ValuesIn(AllCodecs().begin(), AllCodecs().end()),
                         [](const auto& param_info) {
                           return std::string(DTypeName(param_info.param->dtype));
                         });

TEST(DTypeTest, IdsAndNamesAgree) {
  int known = 0;
  for (int id = 0; id < 256; ++id) {
    const std::optional<DType> dtype = DTypeFromId(static_cast<uint8_t>(id));
    if (!dtype) continue;
    ++known;
    EXPECT_EQ(static_cast<int>(*dtype), id);
    EXPECT_EQ(DTypeFromName(DTypeName(*dtype)), dtype);
  }
  EXPECT_EQ(known, 14);
  EXPECT_FALSE(DTypeFromId(5));  // mix8_4 and q4_col are reserved
  EXPECT_FALSE(DTypeFromId(7));
  EXPECT_FALSE(DTypeFromName("q4"));
  EXPECT_FALSE(DTypeFromName("smoe_q4"));  // of vaults: a CMF file has neither id nor name for it
  EXPECT_EQ(DTypeName(DType::kSmoeQ2), "smoe_q2");
}

TEST(AsMatrixTest, FoldsLeadingDimensions) {
  const auto matrix = [](std::vector<uint64_t> shape) { return AsMatrix(shape); };
  EXPECT_EQ(matrix({2, 3, 5})->rows, 6u);
  EXPECT_EQ(matrix({2, 3, 5})->cols, 5u);
  EXPECT_EQ(matrix({7})->rows, 1u);
  EXPECT_EQ(matrix({7})->cols, 7u);
  EXPECT_EQ(matrix({})->cols, 1u);
  const uint64_t large = 0xFFFFFFFF;
  EXPECT_FALSE(matrix({large, large, large, large, large, large}));
  EXPECT_FALSE(matrix({large, large, large}));
  EXPECT_TRUE(matrix({large, large}));
}

TEST(DecodeTest, DTypeWithoutCodecIsUnsupported) {
  for (int id = 0; id < 16; ++id) {
    const std::optional<DType> dtype = DTypeFromId(static_cast<uint8_t>(id));
    if (!dtype || FindCodec(*dtype) != nullptr) continue;
    try {
      Decode(*dtype, {}, {1, 32}, {});
      ADD_FAILURE() << id;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    }
  }
}

}  // namespace
}  // namespace moewe::quant
