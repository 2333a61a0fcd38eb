// What a person sees of a long operation, on a terminal and in a log.
#include "base/progress.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <thread>

namespace moewe {
namespace {

constexpr Progress::Pace kAtOnce{std::chrono::milliseconds(0), std::chrono::milliseconds(0)};

// Everything that `use` makes a Progress write.
template <typename Use>
std::string Written(bool terminal, Progress::Pace pace, const Use& use) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* out = open_memstream(&text, &size);
  {
    Progress progress("convert", 2000, out, terminal, pace);
    use(progress);
  }
  std::fclose(out);
  const std::string written(text, size);
  std::free(text);
  return written;
}

TEST(ProgressTest, PlainLinesWithoutATerminal) {
  const std::string written = Written(false, kAtOnce, [](Progress& progress) {
    progress.Update(500);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    progress.Update(1000, "lm_head.weight");
    progress.Update(2000);
  });
  EXPECT_EQ(written.find('\r'), std::string::npos);
  EXPECT_NE(written.find("moewe: convert:  25 %, 500 B of 2.00 kB\n"), std::string::npos)
      << written;
  EXPECT_NE(written.find("moewe: convert:  50 %, 1.00 kB of 2.00 kB, "), std::string::npos)
      << written;
  EXPECT_NE(written.find(" left\n"), std::string::npos) << written;
  EXPECT_NE(written.find("moewe: convert: 100 %, 2.00 kB of 2.00 kB, "), std::string::npos)
      << written;
}

TEST(ProgressTest, BarIsRedrawnAndTakenAway) {
  const std::string written = Written(true, kAtOnce, [](Progress& progress) {
    progress.Update(1000, "lm_head.weight");
    EXPECT_NO_THROW(progress.Clear());
    progress.Update(5000);  // more than planned is not more than all
  });
  EXPECT_NE(written.find("\rconvert [############............]  50 %"), std::string::npos);
  EXPECT_NE(written.find("[########################] 100 %"), std::string::npos);
  EXPECT_EQ(written.find('\n'), std::string::npos);
  EXPECT_TRUE(written.ends_with("\r\x1b[K"));
}

TEST(ProgressTest, ShortWorkAndQuietShowNothing) {
  const auto use = [](Progress& progress) {
    for (uint64_t i = 0; i <= 2000; i += 100) progress.Update(i);
  };
  const Progress::Pace slow{std::chrono::hours(1), std::chrono::hours(1)};
  EXPECT_EQ(Written(false, slow, use), "");
  EXPECT_EQ(Written(true, slow, use), "");
  Progress quiet("convert", 2000, nullptr);
  use(quiet);
}

}  // namespace
}  // namespace moewe
