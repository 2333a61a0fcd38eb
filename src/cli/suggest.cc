#include "cli/suggest.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace moewe::cli {
namespace {

// A shared beginning counts from this length on, dashes included.
constexpr size_t kShortestStem = 4;

// Levenshtein distance.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

size_t Distance(std::string_view a, std::string_view b) {
  const bool stem =
      std::min(a.size(), b.size()) >= kShortestStem && (a.starts_with(b) || b.starts_with(a));
  return stem ? std::min<size_t>(EditDistance(a, b), 1) : EditDistance(a, b);
}

}  // namespace

std::string Suggestion(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = 1 + word.size() / 3;
  for (const std::string& candidate : candidates) {
    const size_t distance = Distance(word, candidate);
    if (distance <= best_distance && (best.empty() || distance < best_distance)) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best.empty() ? "" : "; did you mean '" + best + "'?";
}

}  // namespace moewe::cli
