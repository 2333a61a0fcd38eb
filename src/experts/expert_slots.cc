#include "experts/expert_slots.h"

#include <utility>

namespace moewe::experts {

ExpertSlots::ExpertSlots(const ExpertIds& ids, uint32_t slots, std::unique_ptr<CachePolicy> policy)
    : slots_(slots), policy_(std::move(policy)), slot_of_(ids.size(), kNone) {
  for (uint32_t slot = slots; slot-- > 0;) free_.push_back(slot);
}

std::optional<uint32_t> ExpertSlots::Find(ExpertId id) {
  const bool resident = slot_of_[id] != kNone;
  if (resident) policy_->Hold(id);  // first: then the use changes no order of candidates
  policy_->Use(id);
  if (!resident) return std::nullopt;
  return slot_of_[id];
}

std::optional<ExpertSlots::Taken> ExpertSlots::Take(ExpertId id, bool below_floor) {
  Taken taken;
  if (!free_.empty()) {
    taken.slot = free_.back();
    free_.pop_back();
  } else {
    taken.evicted = policy_->Victim();
    if (!taken.evicted && below_floor) taken.evicted = policy_->VictimBelowFloor();
    if (!taken.evicted) return std::nullopt;
    policy_->Remove(*taken.evicted);
    taken.slot = std::exchange(slot_of_[*taken.evicted], kNone);
  }
  slot_of_[id] = taken.slot;
  policy_->Hold(id);
  policy_->Insert(id);
  return taken;
}

void ExpertSlots::Release(ExpertId id) { policy_->Release(id); }

void ExpertSlots::Drop(ExpertId id) {
  policy_->Release(id);
  policy_->Remove(id);
  free_.push_back(std::exchange(slot_of_[id], kNone));
}

}  // namespace moewe::experts
