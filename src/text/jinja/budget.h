// What one rendering may use, so that a hostile template can neither hang nor exhaust memory.
//
// A Budget is installed for the current thread while a template renders. Work that grows with the
// data (copies, comparisons, searches) is charged in steps as well, about one a 64 bytes.
#ifndef MOEWE_TEXT_JINJA_BUDGET_H_
#define MOEWE_TEXT_JINJA_BUDGET_H_

#include <cstddef>
#include <cstdint>

namespace moewe::text::jinja {

// A published template spends about 1,000 steps a message; these end a hostile one within about a
// second.
inline constexpr uint64_t kMaxSteps = 20'000'000;
inline constexpr size_t kMaxLiveBytes = size_t{256}
                                        << 20;  // of strings and containers alive at once
inline constexpr size_t kMaxStringBytes = size_t{64} << 20;  // of one string, the output included
// Nested calls of the evaluator, of printing and of comparing. Also bounds the C++ stack (below 2
// MiB).
inline constexpr int kMaxDepth = 1200;

class Budget {
 public:
  Budget();  // becomes the current thread's budget
  ~Budget();
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  // Throw Exception when the limit is passed; without a budget (compiling) they do nothing.
  static void Spend(uint64_t steps);
  static void SpendBytes(size_t bytes) { Spend(1 + bytes / 64); }
  // A container or string that holds `bytes` begins or ends its life. False: not counted.
  static bool Acquire(size_t bytes);
  static void Release(size_t bytes);

 private:
  friend class DepthGuard;
  Budget* outer_;
  uint64_t steps_ = 0;
  size_t live_ = 0;
};

// One level of recursion of whatever kind. Works without a Budget, too.
class DepthGuard {
 public:
  DepthGuard();
  ~DepthGuard();
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;
};

}  // namespace moewe::text::jinja

#endif  // MOEWE_TEXT_JINJA_BUDGET_H_
