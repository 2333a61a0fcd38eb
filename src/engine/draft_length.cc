#include "engine/draft_length.h"

#include <algorithm>

namespace moewe::engine {
namespace {

// Until three drafts have been measured. Models in cache or with experts are above it, dense ones
// below.
constexpr double kAssumedExtra = 0.5;
// A step without drafts now and then keeps its time known while every draft is right.
constexpr size_t kMostInARow = 32;
constexpr size_t kLeastPatience = 8;
constexpr size_t kMostPatience = 128;
constexpr size_t kTrial = 2;  // drafts that are checked to see whether they pay by now
constexpr double kForgetting = 0.95;

}  // namespace

void RecentLow::Add(double value) {
  values_[next_] = value;
  next_ = (next_ + 1) % window_;
  count_ = std::min(count_ + 1, window_);
}

std::optional<double> RecentLow::value() const {
  if (count_ < 3) return std::nullopt;
  std::array<double, kMostWindow> sorted = values_;
  const auto quartile = sorted.begin() + static_cast<ptrdiff_t>(count_ / 4);
  std::nth_element(sorted.begin(), quartile, sorted.begin() + static_cast<ptrdiff_t>(count_));
  return *quartile;
}

void StepTimes::Add(size_t rows, double seconds) {
  if (rows == 1) {
    plain_.Add(seconds);
  } else if (const std::optional<double> plain = plain_.value()) {
    extra_.Add(std::max(0.0, seconds / *plain - 1.0) / static_cast<double>(rows - 1));
  }
}

double StepTimes::extra() const { return extra_.value().value_or(kAssumedExtra); }

DraftLength::DraftLength() : patience_(kLeastPatience) {}

size_t DraftLength::KindOf(size_t match) {
  if (match == kHead) return kKinds - 1;
  return match < 4 ? (match < 3 ? 0 : 1) : std::min<size_t>(kKinds - 2, match / 2);
}

double DraftLength::Right(const Record& record, size_t kind) {
  // As if four had been compared before, so that the first ones do not decide alone.
  constexpr std::array<double, kKinds> kAssumed = {0.4, 0.6, 0.7, 0.8, 0.9, 0.7};
  constexpr double kWeight = 4.0;
  return (record.accepted + kWeight * kAssumed[kind]) / (record.compared + kWeight);
}

size_t DraftLength::Best(double right, double extra, size_t most, bool again) {
  double tokens = 1.0, time = 1.0, likely = 1.0;
  size_t n = 0;
  // The likelihood falls and the price stays: the first draft that does not pay is the end.
  while (n < most) {
    const double wrong_here = likely * (1.0 - right);
    likely *= right;
    const double price = again ? extra * (1.0 + wrong_here * static_cast<double>(n)) : extra;
    if (likely * time <= price * tokens) break;
    tokens += likely;
    time += price;
    ++n;
  }
  return n;
}

size_t DraftLength::Choose(const StepTimes& times, size_t match, size_t most, bool again) {
  if (most == 0 || !times.plain()) return 0;
  if (in_a_row_ >= kMostInARow) {
    in_a_row_ = 0;
    return 0;
  }
  const size_t kind = KindOf(match);
  size_t n = Best(Right(records_[kind], kind), times.extra(), most, again);
  trying_ = n == 0 && ++left_out_ >= patience_;
  if (trying_) n = std::min(kTrial, most);
  if (n > 0) left_out_ = 0;
  in_a_row_ = n > 0 ? in_a_row_ + 1 : 0;
  return n;
}

void DraftLength::Note(size_t match, size_t compared, size_t accepted) {
  if (trying_) {
    const bool right = accepted > 0 && accepted == compared;
    patience_ = right ? kLeastPatience : std::min(2 * patience_, kMostPatience);
  }
  Record& record = records_[KindOf(match)];
  record.compared = kForgetting * record.compared + static_cast<double>(compared);
  record.accepted = kForgetting * record.accepted + static_cast<double>(accepted);
}

}  // namespace moewe::engine
