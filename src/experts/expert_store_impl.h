// The inside of a store of experts: the step that goes on, guesses at steps to come, and what they
// share. The loader knows what is in the slots; this decides what is read when, and what stays.
#ifndef MOEWE_EXPERTS_EXPERT_STORE_IMPL_H_
#define MOEWE_EXPERTS_EXPERT_STORE_IMPL_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "experts/expert_loader.h"
#include "experts/expert_slots.h"
#include "experts/expert_store.h"
#include "experts/guess_score.h"
#include "platform/huge_memory.h"

namespace moewe::experts {

struct ExpertStore::Impl {
  using Layers = std::vector<std::vector<StoredExpert>>;
  Impl(Layers stored, StoreOptions given, const MakeReader& make_reader);

  void Begin(uint32_t layer, std::span<const uint32_t> experts);
  std::span<const LoadedExpert> NextGroup();
  void Abandon();
  void Prefetch(uint32_t layer, std::span<const uint32_t> experts);
  void Prewarm(std::span<const uint64_t> counts);

  const Layers layers;
  const StoreOptions options;
  const ExpertIds ids;
  const uint64_t slot_bytes;
  ExpertSlots slots;
  const uint32_t window;
  StoreStats stats;
  std::vector<uint64_t> counts;
  HugeMemory arena;
  std::unique_ptr<DiskReader> reader;  // before the arena goes, it waits for its reads
  ExpertLoader loader;

  // The step that goes on.
  struct ToRead {
    uint32_t file = 0;
    uint64_t offset = 0;
    ExpertId id = 0;
    uint64_t weight = 0;  // of how often it was used
    bool keep = false;    // stays after a large step
  };
  bool over = true;                // or ended by an error
  uint64_t step = 0;               // number of the step
  bool large = false;              // passes through the window
  std::vector<uint64_t> asked;     // by id: the last step that asked for it
  std::vector<ExpertId> step_ids;  // all of it
  std::vector<ExpertId> there;     // were resident; from next_there on to be handed out
  size_t next_there = 0;
  size_t next_landed = 0;       // in loader.landed()
  std::vector<ToRead> to_read;  // missing; from next_read on without a slot so far
  size_t next_read = 0;
  uint32_t passing = 0;             // that were read for this step and hold a slot
  std::vector<ExpertId> handed;     // what the caller has
  std::vector<LoadedExpert> group;  // ... as it sees it

  // Guesses at steps to come.
  struct Guess {
    uint32_t layer = 0;
    ExpertId id = 0;
  };
  std::vector<Guess> guesses;
  GuessScore score;
  std::vector<uint64_t> prior;  // counts that Prewarm was given

 private:
  void Ask(ExpertId id);
  void SettleGuesses(uint32_t layer);
  void TakeBackGuesses(uint32_t layer, std::span<const uint32_t> experts);
  bool IsGuessed(ExpertId id) const {
    return std::any_of(guesses.begin(), guesses.end(), [id](const Guess& g) { return g.id == id; });
  }
  void PlanLargeStep(uint32_t layer);
  void Pump();
  bool TakeSlot(ExpertId id);
  bool YieldGuess();
  void ReleaseHanded();
  bool TakeNext(bool landed_first, ExpertId* id);
  void TakeGroup();
  uint32_t Share(uint32_t layer, uint32_t of_slots) const;
  uint64_t Weight(ExpertId id) const { return counts[id] + (prior.empty() ? 0 : prior[id]); }
};

}  // namespace moewe::experts

#endif  // MOEWE_EXPERTS_EXPERT_STORE_IMPL_H_
