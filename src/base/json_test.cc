#include "base/json.h"

#include <gtest/gtest.h>

#include <string>

namespace moewe {
namespace {

Json Parse(const std::string& text, const JsonOptions& options = {}) {
  return ParseJson(Bytes(reinterpret_cast<const uint8_t*>(text.data()), text.size()), "file.json",
                   "header", 0, options);
}

ErrorCode Fault(const std::string& text) {
  try {
    Parse(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.where().file, "file.json");
    return error.code();
  }
  return ErrorCode::kInternal;
}

TEST(JsonTest, ReadsWhatTheLibraryReads) {
  for (const char* text :
       {"null", "true", "-3", "18446744073709551615", "1.5e3", R"("aé\n")", "[]", "{}",
        R"({"b":[1,{"c":null}],"a":{"x":[[],{}]},"z":"t"})", " [1 , 2 ] \n"}) {
    EXPECT_EQ(Parse(text), Json::parse(text)) << text;
    EXPECT_EQ(Parse(text).dump(), Json::parse(text).dump()) << text;
  }
}

TEST(JsonTest, RefusesMalformedDocuments) {
  for (const std::string text : {"", "{", "[1,]", "{\"a\" 1}", "nul", "1 2", "{} x", "\"\xff\"",
                                 "{\"a\":1}}", "01", "NaN"}) {
    EXPECT_EQ(Fault(text), ErrorCode::kParse) << text;
  }
  // The library takes a zero byte for the end of the text.
  for (const char* behind : {"", " ", "x", "{}"}) {
    EXPECT_EQ(Fault("{}" + std::string(1, '\0') + behind), ErrorCode::kParse) << behind;
  }
  EXPECT_EQ(Fault(std::string(100000, '[')), ErrorCode::kParse);
  EXPECT_EQ(Fault(std::string(300, '[') + std::string(300, ']')), ErrorCode::kParse);
  EXPECT_NO_THROW(Parse(std::string(256, '[') + std::string(256, ']')));
}

TEST(JsonTest, DuplicateKeys) {
  std::string big = "{";
  for (int i = 0; i < 1000; ++i) big += "\"k" + std::to_string(i) + "\":0,";
  EXPECT_EQ(Fault(R"({"a":1,"b":2,"a":3})"), ErrorCode::kParse);
  EXPECT_EQ(Fault(big + "\"k3\":1}"), ErrorCode::kParse);
  EXPECT_EQ(Fault(R"([{"a":1},{"b":{"c":1,"c":1}}])"), ErrorCode::kParse);
  EXPECT_NO_THROW(Parse(R"([{"a":1},{"a":{"a":1}}])"));
  const JsonOptions last{.duplicate_keys = JsonOptions::DuplicateKeys::kLastWins};
  EXPECT_EQ(Parse(R"({"a":{"x":1},"b":2,"a":[3]})", last).dump(), R"({"a":[3],"b":2})");
  EXPECT_EQ(Parse(big + "\"k3\":1}", last)["k3"], 1);
}

TEST(JsonTest, BigObjectsAreNotQuadratic) {
  std::string text = "{";
  for (int i = 0; i < 200000; ++i) text += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":0";
  // Comparing every key with every other one would run into the test's time limit.
  EXPECT_EQ(Parse(text + "}").size(), 200000u);
}

}  // namespace
}  // namespace moewe
