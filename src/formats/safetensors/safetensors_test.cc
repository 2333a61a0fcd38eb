#include "formats/safetensors/safetensors.h"

#include <gtest/gtest.h>

#include "base/bytes_of.h"
#include "formats/test_util.h"

namespace moewe::formats {
namespace {

SafetensorsHeader Parse(const std::string& file) { return ParseSafetensors(BytesOf(file), "f"); }

std::optional<ErrorCode> Fault(const std::string& header, const std::string& data) {
  return Thrown([&] { Parse(Safetensors(header, data)); });
}

TEST(SafetensorsTest, ReadsTensorsInDataOrder) {
  const std::string header = R"({"b":{"dtype":"F32","shape":[2,1],"data_offsets":[4,12]},)"
                             R"("__metadata__":{"format":"pt"},)"
                             R"("a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
                             R"("n":{"dtype":"I64","shape":[],"data_offsets":[12,20]},)"
                             R"("e":{"dtype":"F16","shape":[0,7],"data_offsets":[12,12]}}   )";
  const SafetensorsHeader parsed = Parse(Safetensors(header, std::string(20, 'x')));
  ASSERT_EQ(parsed.entries.size(), 4u);
  EXPECT_EQ(parsed.data_offset, 8 + header.size());
  EXPECT_EQ(parsed.entries[0].name, "a");
  EXPECT_EQ(parsed.entries[0].dtype, DType::kBf16);
  EXPECT_EQ(parsed.entries[1].name, "b");
  EXPECT_EQ(parsed.entries[1].file_offset, parsed.data_offset + 4);
  EXPECT_EQ(parsed.entries[1].nbytes, 8u);
  EXPECT_EQ(parsed.entries[1].shape, (std::vector<uint64_t>{2, 1}));
  EXPECT_EQ(parsed.entries[2].name, "e");
  EXPECT_EQ(parsed.entries[3].name, "n");
  EXPECT_EQ(parsed.entries[3].dtype, std::nullopt);
  EXPECT_EQ(parsed.entries[3].dtype_name, "I64");
  EXPECT_EQ(parsed.metadata.at("format"), "pt");
}

TEST(SafetensorsTest, SizesAreChecked) {
  const std::string data(8, 'x');
  const auto tensor = [](const std::string& body) { return "{\"a\":{" + body + "}}"; };
  const std::vector<std::pair<const char*, ErrorCode>> faults = {
      {R"("dtype":"F32","shape":[2],"data_offsets":[0,9])", ErrorCode::kBounds},
      {R"("dtype":"F32","shape":[2],"data_offsets":[8,0])", ErrorCode::kBounds},
      {R"("dtype":"F32","shape":[3],"data_offsets":[0,8])", ErrorCode::kBounds},
      {R"("dtype":"F32","shape":[1],"data_offsets":[0,4])", ErrorCode::kBounds},  // trailing data
      {R"("dtype":"F32","shape":[1],"data_offsets":[4,8])", ErrorCode::kBounds},  // hole
      {R"("dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,8])",
       ErrorCode::kBounds},
      {R"("dtype":"U8","shape":[9223372036854775807,2],"data_offsets":[0,8])", ErrorCode::kBounds},
      {R"("dtype":"F4","shape":[15],"data_offsets":[0,8])", ErrorCode::kBounds},
      {R"("dtype":"F32","shape":[0],"data_offsets":[0,8])", ErrorCode::kBounds},
      {R"("dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615])", ErrorCode::kBounds},
      {R"("dtype":"F33","shape":[2],"data_offsets":[0,8])", ErrorCode::kParse},
      {R"("dtype":7,"shape":[2],"data_offsets":[0,8])", ErrorCode::kParse},
      {R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])", ErrorCode::kParse},
      {R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])", ErrorCode::kParse},
      {R"("dtype":"F32","shape":2,"data_offsets":[0,8])", ErrorCode::kParse},
      {R"("dtype":"F32","shape":[2],"data_offsets":[0])", ErrorCode::kParse},
      {R"("dtype":"F32","shape":[2])", ErrorCode::kParse},
      {R"("shape":[2],"data_offsets":[0,8])", ErrorCode::kParse},
  };
  for (const auto& [body, code] : faults) EXPECT_EQ(Fault(tensor(body), data), code) << body;
  EXPECT_EQ(Fault(tensor(R"("dtype":"F4","shape":[16],"data_offsets":[0,8])"), data), std::nullopt);
}

TEST(SafetensorsTest, StructureIsChecked) {
  const std::string a = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  const std::string b = R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]})";
  EXPECT_EQ(Fault("{" + a + "," + b + "}", "123456"), ErrorCode::kBounds);  // overlap
  EXPECT_EQ(Fault("{" + a + "," + a + "}", "1234"), ErrorCode::kParse);     // twice
  EXPECT_EQ(Fault(R"({"__metadata__":{"k":1}})", ""), ErrorCode::kParse);
  EXPECT_EQ(Fault(R"({"":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", ""),
            ErrorCode::kParse);
  EXPECT_EQ(Fault("[]", ""), ErrorCode::kParse);
  EXPECT_EQ(Fault("{", ""), ErrorCode::kParse);
  EXPECT_EQ(Fault("", ""), ErrorCode::kParse);
  EXPECT_EQ(Fault("{}", ""), std::nullopt);
  EXPECT_EQ(Fault("{}", "x"), ErrorCode::kBounds);
  EXPECT_EQ(Thrown([] { Parse("1234567"); }), ErrorCode::kBounds);
}

TEST(SafetensorsTest, HeaderLengthAgainstTheFile) {
  const std::string good = Safetensors("{}", "");
  for (const uint64_t length : {uint64_t{3}, uint64_t{100'000'001}, ~uint64_t{0}, ~uint64_t{7}}) {
    std::string file = good;
    std::memcpy(file.data(), &length, sizeof(length));
    EXPECT_EQ(Thrown([&] { Parse(file); }), ErrorCode::kBounds) << length;
  }
}

// A header of exactly 99,994 ... 100,001 bytes: writers that count the 8 length bytes in or out
// differ here.
TEST(SafetensorsTest, HeadersAroundAHundredThousandBytes) {
  for (size_t size = 99'994; size <= 100'001; ++size) {
    const std::string begin = R"({"__metadata__":{"pad":")";
    const std::string end = R"("},"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
    const std::string header = begin + std::string(size - begin.size() - end.size(), 'p') + end;
    ASSERT_EQ(header.size(), size);
    const SafetensorsHeader parsed = Parse(Safetensors(header, "1234"));
    EXPECT_EQ(parsed.entries.at(0).file_offset, 8 + size);
  }
}

TEST(SafetensorsTest, TwentyThousandTensors) {
  std::string header = "{";
  for (int i = 0; i < 20000; ++i) {
    header += (i == 0 ? "\"" : ",\"") + std::string("model.layers.") + std::to_string(i) +
              ".mlp.experts.weight\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[" +
              std::to_string(i) + "," + std::to_string(i + 1) + "]}";
  }
  const std::string file = Safetensors(header + "}", std::string(20000, 'x'));
  EXPECT_EQ(Parse(file).entries.size(), 20000u);
}

}  // namespace
}  // namespace moewe::formats
