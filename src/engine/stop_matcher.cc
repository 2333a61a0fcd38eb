#include "engine/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "moewe/error.h"

namespace moewe::engine {

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& stop : stops) {
    if (stop.empty()) throw Error(ErrorCode::kUsage, "a stop string is empty");
    std::vector<size_t> border(stop.size() + 1, 0);
    for (size_t i = 1, k = 0; i < stop.size(); ++i) {
      while (k > 0 && stop[i] != stop[k]) k = border[k];
      if (stop[i] == stop[k]) ++k;
      border[i + 1] = k;
    }
    automata_.push_back({std::move(stop), std::move(border)});
  }
}

std::string StopMatcher::Push(std::string_view piece) {
  if (stopped_) return "";
  for (const char byte : piece) {
    held_.push_back(byte);
    const Automaton* longest = nullptr;
    for (Automaton& a : automata_) {
      while (a.matched > 0 && a.stop[a.matched] != byte) a.matched = a.border[a.matched];
      if (a.stop[a.matched] == byte) ++a.matched;
      if (a.matched == a.stop.size() &&
          (longest == nullptr || a.stop.size() > longest->stop.size())) {
        longest = &a;
      }
    }
    if (longest != nullptr) {
      stopped_ = true;
      match_ = longest->stop;
      held_.resize(held_.size() - longest->stop.size());
      return std::exchange(held_, "");
    }
  }
  size_t ambiguous = 0;
  for (const Automaton& a : automata_) ambiguous = std::max(ambiguous, a.matched);
  std::string safe = held_.substr(0, held_.size() - ambiguous);
  held_.erase(0, safe.size());
  return safe;
}

std::string StopMatcher::Finish() { return std::exchange(held_, ""); }

}  // namespace moewe::engine
