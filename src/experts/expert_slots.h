// The places of a cache of experts: which expert is in which, and who has to go.
//
// Places are numbers; whoever owns the memory behind them (an arena of equal slots, or nothing in a
// simulation) fills a place that Take hands out.
#ifndef MOEWE_EXPERTS_EXPERT_SLOTS_H_
#define MOEWE_EXPERTS_EXPERT_SLOTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "experts/cache_policy.h"

namespace moewe::experts {

// One thread at a time. For a step that needs several experts at once: Find all of them, holding
// those that are there, then Take places for the others, compute, Release all.
class ExpertSlots {
 public:
  ExpertSlots(const ExpertIds& ids, uint32_t slots, std::unique_ptr<CachePolicy> policy);

  uint32_t slots() const { return slots_; }
  uint32_t used() const { return slots_ - static_cast<uint32_t>(free_.size()); }

  // The place of `id`, which is held from then on; nothing if it is not resident. Counts as a use
  // either way.
  std::optional<uint32_t> Find(ExpertId id);

  // Counts as a use, and holds nothing.
  void Use(ExpertId id) { policy_->Use(id); }

  struct Taken {
    uint32_t slot = 0;
    std::optional<ExpertId> evicted;  // what was there
  };
  // A place for `id`, which is not resident and is held from then on; nothing if every place is
  // held or, unless `below_floor`, protected by its layer's floor.
  std::optional<Taken> Take(ExpertId id, bool below_floor = false);

  void Release(ExpertId id);  // once for each Find or Take that succeeded

  // `id`, which nobody else holds, gives its place back: what should be there is not.
  void Drop(ExpertId id);

  CachePolicy& policy() { return *policy_; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  const uint32_t slots_;
  std::unique_ptr<CachePolicy> policy_;
  std::vector<uint32_t> slot_of_;  // by id; kNone = not resident
  std::vector<uint32_t> free_;
};

}  // namespace moewe::experts

#endif  // MOEWE_EXPERTS_EXPERT_SLOTS_H_
