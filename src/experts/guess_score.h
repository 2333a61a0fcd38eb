// Whether guesses at the next layer's experts are worth the disk's time.
#ifndef MOEWE_EXPERTS_GUESS_SCORE_H_
#define MOEWE_EXPERTS_GUESS_SCORE_H_

#include <cstdint>

namespace moewe::experts {

// A right guess hides a read behind other work; a wrong one may delay a read that somebody waits
// for by as much, and evicts an expert for nothing. So at least about half must be right. Guesses
// are scored whether they are read or not: when they were given up for being wrong, being right
// brings them back.
class GuessScore {
 public:
  void Add(bool right) {
    ++total_;
    if (right) ++right_;
    if (total_ >= kLeast) {
      const double share = static_cast<double>(right_) / static_cast<double>(total_);
      if (share < kStop) pays_ = false;
      if (share >= kStart) pays_ = true;
    }
    if (total_ == kMost) {  // what is long ago counts less
      total_ /= 2;
      right_ /= 2;
    }
  }

  bool pays() const { return pays_; }

 private:
  static constexpr uint32_t kLeast = 16;
  static constexpr uint32_t kMost = 64;
  static constexpr double kStop = 0.4;
  static constexpr double kStart = 0.5;

  uint32_t total_ = 0;
  uint32_t right_ = 0;
  bool pays_ = true;
};

}  // namespace moewe::experts

#endif  // MOEWE_EXPERTS_GUESS_SCORE_H_
