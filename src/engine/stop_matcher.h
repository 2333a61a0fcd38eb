// Stop strings in streamed text: nothing of a stop string is ever given out, and nothing else is
// held back.
#ifndef MOEWE_ENGINE_STOP_MATCHER_H_
#define MOEWE_ENGINE_STOP_MATCHER_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace moewe::engine {

// Text ends before the stop string that is complete first; of several that end at the same byte,
// before the longest. How the text is cut into pieces does not matter. One Knuth-Morris-Pratt
// automaton a stop string: what is held back is exactly the longest end of the text that could
// still become one. Not thread-safe.
class StopMatcher {
 public:
  // Throws Error{kUsage} for an empty stop string.
  explicit StopMatcher(std::vector<std::string> stops);

  // The text that is safe to show after `piece` arrived; empty once stopped. If the pieces and the
  // stop strings are whole UTF-8 characters, so is what comes out.
  std::string Push(std::string_view piece);

  // What is still held back, when no more text comes; empty if stopped.
  std::string Finish();

  bool stopped() const { return stopped_; }
  // The stop string that was found; empty before.
  const std::string& match() const { return match_; }

 private:
  struct Automaton {
    std::string stop;
    std::vector<size_t> border;  // border[i]: longest proper prefix of stop[0, i) that also ends it
    size_t matched = 0;          // bytes of `stop` that the text ends with
  };

  std::vector<Automaton> automata_;
  std::string held_;
  bool stopped_ = false;
  std::string match_;
};

}  // namespace moewe::engine

#endif  // MOEWE_ENGINE_STOP_MATCHER_H_
