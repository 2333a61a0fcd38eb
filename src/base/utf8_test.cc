#include "base/utf8.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "moewe/error.h"

namespace moewe {
namespace {

TEST(Utf8Test, ValidAndInvalid) {
  for (const std::string text : {"", "a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80",
                                 "\xed\x9f\xbf", "\xee\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(IsUtf8(text)) << text;
  }
  for (const std::string text : {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xed\xa0\x80",
                                 "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff",
                                 "\xc3", "\xe2\x82", "\xf0\x9f\x98", "\xe2\x28\xa1", "a\xc3"}) {
    EXPECT_FALSE(IsUtf8(text));
  }
}

// Where `check` says that `text` is wrong.
std::optional<uint64_t> FaultIn(void (*check)(std::string_view, Where), const std::string& text) {
  try {
    check(text, {"f", "field"});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_EQ(error.where().file, "f");
    EXPECT_EQ(error.where().field, "field");
    return error.where().offset;
  }
  return {};
}

TEST(Utf8Test, FaultsAreFoundWhereTheirCharacterBegins) {
  EXPECT_EQ(FaultIn(RequireUtf8, ""), std::nullopt);
  EXPECT_EQ(FaultIn(RequireUtf8, "\n\xf0\x9f\x98\x80"), std::nullopt);
  EXPECT_EQ(FaultIn(RequireUtf8, "\xff"), 0u);
  EXPECT_EQ(FaultIn(RequireUtf8, "ab\xc3\xa9\xf0\x9f\x98"), 4u);
  EXPECT_EQ(FaultIn(RequireUtf8, "ab\xe2\x28\xa1"), 2u);
}

TEST(Utf8Test, LinesHaveNoControlCharacters) {
  EXPECT_EQ(FaultIn(RequireLine, "a name, \xc3\xa9\xe2\x82\xac\xc2\xa0"), std::nullopt);
  EXPECT_EQ(FaultIn(RequireLine, "a\xff"), 1u);
  EXPECT_EQ(FaultIn(RequireLine, "a\nb"), 1u);
  EXPECT_EQ(FaultIn(RequireLine, std::string("a\0b", 3)), 1u);
  EXPECT_EQ(FaultIn(RequireLine, "abc\x1b[31m"), 3u);
  EXPECT_EQ(FaultIn(RequireLine, "\x7f"), 0u);
  EXPECT_EQ(FaultIn(RequireLine, "a\xc2\x85"), 1u);
}

}  // namespace
}  // namespace moewe
