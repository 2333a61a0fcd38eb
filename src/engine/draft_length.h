// How many drafted tokens a step should check: as many as pay.
//
// A row more in a step costs time (in a mixture of experts nearly as much as another step where its
// experts are others), and a draft is worth what it spares if it is right. Both are measured. The
// clock decides how many tokens are drafted, and never which ones an answer has.
#ifndef MOEWE_ENGINE_DRAFT_LENGTH_H_
#define MOEWE_ENGINE_DRAFT_LENGTH_H_

#include <array>
#include <cstddef>
#include <optional>

namespace moewe::engine {

// The lower quartile of the last measurements: what something takes while nobody disturbs it. Other
// programs only ever add time, on a shared machine ten times as much.
class RecentLow {
 public:
  static constexpr size_t kMostWindow = 15;
  explicit RecentLow(size_t window) : window_(window) {}
  void Add(double value);
  // Nothing before the third.
  std::optional<double> value() const;

 private:
  size_t window_;  // at most kMostWindow
  size_t next_ = 0;
  size_t count_ = 0;
  std::array<double, kMostWindow> values_ = {};
};

// What steps of one sequence take. Not thread-safe.
class StepTimes {
 public:
  void Add(size_t rows, double seconds);
  std::optional<double> plain() const { return plain_.value(); }  // of one row
  // That each further row adds, as a part of plain(); an assumption until it is measured.
  double extra() const;

 private:
  RecentLow plain_{RecentLow::kMostWindow};
  RecentLow extra_{9};
};

// Of one request. Not thread-safe.
class DraftLength {
 public:
  DraftLength();

  // The match of what a model's prediction head drafts.
  static constexpr size_t kHead = ~size_t{0};

  // How many tokens of a draft with so long a match to check, at most `most`. Drafts that do not
  // pay are tried again from time to time; ever more rarely while they are wrong. `again`: those
  // that are right before a wrong one are computed again in the next step.
  size_t Choose(const StepTimes& times, size_t match, size_t most, bool again);
  // What came of it. `compared`: drafted tokens for which a token was drawn, `accepted` of them
  // were right.
  void Note(size_t match, size_t compared, size_t accepted);

  // The number of drafts, at most `most`, with which a step gives most tokens for its time: each is
  // right with probability `right` if those before it are, and adds `extra` to the time of one row.
  static size_t Best(double right, double extra, size_t most, bool again);

 private:
  // Matches of 2, 3, 4 and 5, 6 and 7, 8 and more tokens; a head's.
  static constexpr size_t kKinds = 6;
  static size_t KindOf(size_t match);

  struct Record {
    double compared = 0.0, accepted = 0.0;  // recent ones count more
  };
  static double Right(const Record& record, size_t kind);

  std::array<Record, kKinds> records_;
  size_t in_a_row_ = 0;  // steps with drafts
  size_t left_out_ = 0;  // drafts since the last that was checked
  size_t patience_;      // of them until one is tried
  bool trying_ = false;
};

}  // namespace moewe::engine

#endif  // MOEWE_ENGINE_DRAFT_LENGTH_H_
