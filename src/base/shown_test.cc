#include "base/shown.h"

#include <gtest/gtest.h>

namespace moewe {
namespace {

TEST(Shown, PlainTextStays) {
  for (const char* text :
       {"", "model.layers.0.mlp.gate.weight", "\xC3\xBC · \xE2\x82\xAC \\n", "\xC2\xA0"}) {
    EXPECT_EQ(Shown(text), text);
  }
}

TEST(Shown, ControlsAreEscaped) {
  EXPECT_EQ(Shown("a\nb\rc\td"), "a\\nb\\rc\\td");
  EXPECT_EQ(Shown("\x1b[31mred\x7f"), "\\x1b[31mred\\x7f");
  EXPECT_EQ(Shown("\xC2\x9B"
                  "2J\xC2\x80"),
            "\\u009b2J\\u0080");
  EXPECT_EQ(Shown(std::string_view("a\0b", 3)), "a\\x00b");
}

TEST(Shown, BytesThatAreNotUtf8AreEscaped) {
  EXPECT_EQ(Shown("a\xFF"
                  "b\xC2"),
            "a\\xffb\\xc2");
  EXPECT_EQ(Shown("\xC0\x80\xE2\x82"), "\\xc0\\x80\\xe2\\x82");
}

}  // namespace
}  // namespace moewe
