#include "base/size.h"

#include <gtest/gtest.h>

#include "moewe/error.h"

namespace moewe {
namespace {

TEST(ParseSize, UnitsOfBothKinds) {
  EXPECT_EQ(ParseSize("8GiB"), 8ull << 30);
  EXPECT_EQ(ParseSize("500MB"), 500000000u);
  EXPECT_EQ(ParseSize("4096"), 4096u);
  EXPECT_EQ(ParseSize("0"), 0u);
  EXPECT_EQ(ParseSize("12b"), 12u);
  EXPECT_EQ(ParseSize("1.5 GiB"), 3ull << 29);
  EXPECT_EQ(ParseSize("2g"), 2ull << 30);
  EXPECT_EQ(ParseSize("3kB"), 3000u);
  EXPECT_EQ(ParseSize("1tib"), 1ull << 40);
}

TEST(ParseSize, AnythingElseIsAnError) {
  for (const char* bad : {"", "GiB", "-1", "1e3", "nan", "inf", "8 X", "8GiBs", "1.2.3", "8G B",
                          "0x10", "99999999999TiB", "18446744073709551616", " 8"}) {
    EXPECT_THROW(ParseSize(bad), Error) << bad;
  }
}

TEST(FormatSize, ThreeDigits) {
  EXPECT_EQ(FormatSize(0), "0 B");
  EXPECT_EQ(FormatSize(999), "999 B");
  EXPECT_EQ(FormatSize(1000), "1.00 kB");
  EXPECT_EQ(FormatSize(11897976), "11.9 MB");
  EXPECT_EQ(FormatSize(999950), "1.00 MB");
  EXPECT_EQ(FormatSize(123456789012), "123 GB");
}

}  // namespace
}  // namespace moewe
