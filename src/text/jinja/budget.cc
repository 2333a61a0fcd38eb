#include "text/jinja/budget.h"

#include <algorithm>

#include "text/jinja/error.h"

namespace moewe::text::jinja {
namespace {

thread_local Budget* current_budget = nullptr;
thread_local int current_depth = 0;

}  // namespace

Budget::Budget() : outer_(current_budget) { current_budget = this; }
Budget::~Budget() { current_budget = outer_; }

void Budget::Spend(uint64_t steps) {
  Budget* budget = current_budget;
  if (budget == nullptr) return;
  budget->steps_ += steps;
  if (budget->steps_ > kMaxSteps) {
    Raise("RuntimeError",
          "the template does not end: more than " + std::to_string(kMaxSteps) + " steps");
  }
}

bool Budget::Acquire(size_t bytes) {
  Budget* budget = current_budget;
  if (budget == nullptr) return false;
  if (bytes > kMaxLiveBytes - budget->live_) {
    Raise("MemoryError",
          "the template needs more than " + std::to_string(kMaxLiveBytes >> 20) + " MiB");
  }
  budget->live_ += bytes;
  return true;
}

void Budget::Release(size_t bytes) {
  Budget* budget = current_budget;
  if (budget != nullptr) budget->live_ -= std::min(bytes, budget->live_);
}

DepthGuard::DepthGuard() {
  if (current_depth >= kMaxDepth) Raise("RecursionError", "maximum recursion depth exceeded");
  ++current_depth;
}
DepthGuard::~DepthGuard() { --current_depth; }

}  // namespace moewe::text::jinja
