#include "base/base64.h"

#include <gtest/gtest.h>

#include "base/bytes_of.h"

namespace moewe {
namespace {

std::optional<std::string> Decoded(std::string_view text) {
  const auto bytes = Base64Decode(text);
  if (!bytes) return std::nullopt;
  return std::string(bytes->begin(), bytes->end());
}

// The test vectors of RFC 4648, section 10.
TEST(Base64Test, VectorsOfTheStandard) {
  const std::pair<std::string, std::string> cases[] = {{"", ""},
                                                       {"f", "Zg=="},
                                                       {"fo", "Zm8="},
                                                       {"foo", "Zm9v"},
                                                       {"foob", "Zm9vYg=="},
                                                       {"fooba", "Zm9vYmE="},
                                                       {"foobar", "Zm9vYmFy"}};
  for (const auto& [plain, encoded] : cases) {
    EXPECT_EQ(Base64Encode(BytesOf(plain)), encoded);
    EXPECT_EQ(Decoded(encoded), plain);
  }
}

TEST(Base64Test, EveryByteComesBack) {
  for (size_t size : {254u, 255u, 256u}) {
    std::vector<uint8_t> bytes(size);
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(255 - i);
    EXPECT_EQ(Base64Decode(Base64Encode(bytes)), bytes);
  }
}

TEST(Base64Test, RefusesWhatAnEncoderNeverWrites) {
  for (const char* text : {"Zg", "Zg=", "Z===", "====", "Zg==Zg==", "Zm9v\n", "Zm 9", "Zm-_",
                           "Zh==", "Zm9=", "=m9v"}) {
    EXPECT_FALSE(Base64Decode(text)) << text;
  }
}

}  // namespace
}  // namespace moewe
