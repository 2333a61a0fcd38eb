// How far a long operation is: a bar that is redrawn on a terminal, now and then a plain line
// elsewhere.
#ifndef MOEWE_BASE_PROGRESS_H_
#define MOEWE_BASE_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace moewe {

// Not thread-safe.
class Progress {
 public:
  // Nothing is written before something took this long; then at most so often.
  struct Pace {
    std::chrono::milliseconds redraw{100};  // on a terminal
    std::chrono::milliseconds line{2000};   // elsewhere
  };

  // Of `total` bytes. `out` is stderr, or null for silence (--quiet).
  Progress(std::string label, uint64_t total, std::FILE* out);
  Progress(std::string label, uint64_t total, std::FILE* out, bool terminal, Pace pace);
  ~Progress() { Clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` bytes so far; `item` is what is at work. What the first call says counts as done before
  // the start, so that the speed of a resumed operation is that of its own work. Cheap.
  void Update(uint64_t done, std::string_view item = "");

  // Takes the bar off the terminal, so that other lines can be written; the next Update draws it
  // again.
  void Clear();

 private:
  using Clock = std::chrono::steady_clock;

  std::string Text(uint64_t done, double seconds) const;

  std::string label_;
  uint64_t total_;
  std::FILE* out_;
  bool terminal_;
  Pace pace_;
  bool drawn_ = false;
  bool started_ = false;
  uint64_t first_ = 0;  // bytes that were done at the start
  Clock::time_point start_;
  Clock::time_point next_;
};

}  // namespace moewe

#endif  // MOEWE_BASE_PROGRESS_H_
