#include "engine/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

#include "moewe/error.h"

namespace moewe::engine {
namespace {

// Feeds the pieces and joins what comes out.
std::string Feed(StopMatcher& matcher, const std::vector<std::string>& pieces) {
  std::string shown;
  for (const std::string& piece : pieces) shown += matcher.Push(piece);
  return shown + matcher.Finish();
}

TEST(StopMatcher, SpansSeveralPieces) {
  StopMatcher matcher({"DEFGHI"});
  EXPECT_EQ(matcher.Push("ABC DEF"), "ABC ");
  EXPECT_EQ(matcher.Push("G"), "");
  EXPECT_EQ(matcher.Push("HI tail"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.match(), "DEFGHI");
  EXPECT_EQ(matcher.Finish(), "");
  EXPECT_EQ(matcher.Push("more"), "");
}

TEST(StopMatcher, ReleasesAPrefixThatTurnedOutHarmless) {
  StopMatcher matcher({"\n\nUser:"});
  EXPECT_EQ(matcher.Push("one\n"), "one");
  EXPECT_EQ(matcher.Push("\nUse"), "");
  EXPECT_EQ(matcher.Push("ful"), "\n\nUseful");
  EXPECT_EQ(matcher.Push("\n"), "");
  EXPECT_EQ(matcher.Finish(), "\n");
}

TEST(StopMatcher, NothingIsHeldWhenNothingIsAmbiguous) {
  StopMatcher matcher({"###", "END"});
  for (const std::string piece : {"a", "b#c", "ENTER", "xx"}) EXPECT_EQ(matcher.Push(piece), piece);
}

TEST(StopMatcher, TheFirstCompleteStopWins) {
  StopMatcher inner({"abcde", "bcd"});
  EXPECT_EQ(Feed(inner, {"xab", "cdef"}), "xa");
  EXPECT_EQ(inner.match(), "bcd");
  StopMatcher same_end({"d", "bcd"});
  EXPECT_EQ(Feed(same_end, {"abcd"}), "a");
  EXPECT_EQ(same_end.match(), "bcd");
}

TEST(StopMatcher, CharactersAreNotCut) {
  StopMatcher matcher({"\xC3\xA8!"});  // e grave and an exclamation mark
  EXPECT_EQ(matcher.Push("\xC3\xA9"), "\xC3\xA9");
  EXPECT_EQ(matcher.Push("\xC3\xA8"), "");
  EXPECT_EQ(matcher.Push("?"), "\xC3\xA8?");
}

TEST(StopMatcher, EmptyStopIsRefused) { EXPECT_THROW(StopMatcher({"a", ""}), Error); }

// Smallest end, then smallest start, found by trying every place.
std::string NaiveCut(const std::string& text, const std::vector<std::string>& stops,
                     bool* stopped) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0) {
        longest = std::max(longest, stop.size());
      }
    }
    if (longest > 0) {
      *stopped = true;
      return text.substr(0, end - longest);
    }
  }
  *stopped = false;
  return text;
}

// The longest end of `text` that begins some stop string.
size_t NaiveHeld(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t n = text.size(); n > 0; --n) {
    for (const std::string& stop : stops) {
      if (n < stop.size() && stop.compare(0, n, text, text.size() - n, n) == 0) return n;
    }
  }
  return 0;
}

TEST(StopMatcher, AgreesWithNaiveSearchOnRandomTexts) {
  std::mt19937 random(7);
  const auto word = [&](size_t min, size_t max) {
    std::string s(min + random() % (max - min + 1), 'a');
    for (char& c : s) c = static_cast<char>('a' + random() % 2);
    return s;
  };
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> stops;
    for (size_t i = 0, n = random() % 4; i < n; ++i) stops.push_back(word(3, 8));
    const std::string text = word(0, 40);
    bool stopped = false;
    const std::string expected = NaiveCut(text, stops, &stopped);
    StopMatcher matcher(stops);
    std::string shown;
    for (size_t at = 0; at < text.size();) {
      const size_t n = std::min(text.size() - at, size_t{1} + random() % 5);
      shown += matcher.Push(std::string_view(text).substr(at, n));
      at += n;
      if (!matcher.stopped()) {
        ASSERT_EQ(shown.size(), at - NaiveHeld(text.substr(0, at), stops)) << text;
      }
    }
    ASSERT_EQ(shown + matcher.Finish(), expected) << text;
    ASSERT_EQ(matcher.stopped(), stopped);
  }
}

}  // namespace
}  // namespace moewe::engine
