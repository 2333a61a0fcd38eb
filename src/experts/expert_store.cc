#include "experts/expert_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "experts/arena.h"
#include "experts/expert_loader.h"
#include "experts/expert_slots.h"
#include "experts/guess_score.h"
#include "moewe/error.h"

namespace moewe::experts {
namespace {

using Entry = ExpertLoader::Entry;
using Phase = ExpertLoader::Phase;
using Purpose = ExpertLoader::Purpose;
using Layers = std::vector<std::vector<StoredExpert>>;

// What passes through the arena in a large step: enough for the disk's queue and for the experts
// that are computed with meanwhile.
constexpr uint64_t kWindowBytes = uint64_t{64} << 20;
constexpr uint32_t kLeastWindow = 16;  // a token's experts are always read at once
constexpr uint32_t kGuessShare = 4;    // slots for guesses: one in so many
constexpr uint32_t kRetrySteps = 16;   // WantsGuesses while they do not pay: one step in so many

uint32_t WindowOf(uint32_t slots, uint64_t slot_bytes) {
  const auto fit = static_cast<uint32_t>(std::min<uint64_t>(kWindowBytes / slot_bytes, slots / 4));
  return std::min(slots, std::max(kLeastWindow, fit));
}

std::vector<uint32_t> Counts(std::span<const std::vector<StoredExpert>> layers) {
  std::vector<uint32_t> counts;
  for (const auto& layer : layers) counts.push_back(static_cast<uint32_t>(layer.size()));
  return counts;
}

uint32_t SlotsOf(uint64_t arena_bytes, uint64_t slot_bytes, uint32_t experts) {
  const uint64_t slots =
      slot_bytes == 0 ? 0 : std::min<uint64_t>(arena_bytes / slot_bytes, experts);
  if (slots == 0) {
    throw Error(ErrorCode::kUsage, fmt::format("{} bytes of arena hold no expert of {} bytes",
                                               arena_bytes, slot_bytes));
  }
  return static_cast<uint32_t>(slots);
}

}  // namespace

struct ExpertStore::Impl {
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
  Arena arena;
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

ExpertStore::Impl::Impl(Layers stored, StoreOptions given, const MakeReader& make_reader)
    : layers(std::move(stored)),
      options(std::move(given)),
      ids(Counts(layers)),
      slot_bytes(SlotBytes(layers)),
      slots(ids, SlotsOf(options.arena_bytes, slot_bytes, ids.size()), MakeLru(ids, options.floor)),
      window(WindowOf(slots.slots(), slot_bytes)),
      counts(ids.size(), 0),
      arena(slots.slots() * slot_bytes),
      reader(make_reader(arena.memory())),
      loader(layers, ids, options, slot_bytes, arena.memory(), &slots, reader.get(), &stats),
      asked(ids.size(), 0) {
  for (const auto& layer : layers) {
    for (const StoredExpert& expert : layer) {
      if (PlanReads(expert).count == 0) {
        throw Error(ErrorCode::kUsage, "an expert has no bytes");
      }
    }
  }
  stats.arena_bytes = slots.slots() * slot_bytes;
  stats.slots = slots.slots();
  stats.experts = ids.size();
  size_t most = 0;
  for (const auto& layer : layers) most = std::max(most, layer.size());
  step_ids.reserve(most);
  there.reserve(most);
  to_read.reserve(most);
  handed.reserve(most);
  group.reserve(most);
  guesses.reserve(slots.slots() / kGuessShare);
  loader.landed().reserve(most);
}

// A layer's part of so many slots if every expert has the same right to one.
uint32_t ExpertStore::Impl::Share(uint32_t layer, uint32_t of_slots) const {
  return static_cast<uint32_t>(uint64_t{of_slots} * ids.experts(layer) / ids.size());
}

void ExpertStore::Impl::Begin(uint32_t layer, std::span<const uint32_t> experts) {
  Abandon();
  if (layer >= ids.layers()) throw Error(ErrorCode::kUsage, "a layer that the store does not have");
  loader.Poll(false);
  over = false;
  ++step;
  for (const uint32_t expert : experts) {
    if (expert >= ids.experts(layer)) {
      throw Error(ErrorCode::kUsage, "an expert that its layer does not have");
    }
    Ask(ids.id(layer, expert));
  }
  if (!guesses.empty()) SettleGuesses(layer);
  if (to_read.empty()) return;
  loader.CancelQueued();
  PlanLargeStep(layer);
  Pump();
}

void ExpertStore::Impl::Ask(ExpertId id) {
  Entry& entry = loader.entry(id);
  step_ids.push_back(id);
  asked[id] = step;
  ++counts[id];
  if (entry.phase == Phase::kAbsent) {
    ++stats.missed;
    slots.Use(id);
    const PlannedRead first =
        PlanReads(layers[ids.layer(id)][id - ids.id(ids.layer(id), 0)]).reads[0];
    to_read.push_back({.file = first.file, .offset = first.offset, .id = id, .weight = Weight(id)});
    return;
  }
  if (entry.phase == Phase::kThere) {
    ++(entry.unused ? stats.prefetched : stats.resident);
    slots.Find(id);
    if (std::exchange(entry.kept, false)) slots.Release(id);
    there.push_back(id);
  } else {
    ++(entry.unused ? stats.prefetched : stats.missed);
    slots.Use(id);
    loader.Want(id);
  }
  loader.MarkUsed(id);
}

// Of the guesses at this layer, which has been asked by now.
void ExpertStore::Impl::SettleGuesses(uint32_t layer) {
  bool wrong_reading = false;
  std::erase_if(guesses, [&](const Guess& guess) {
    if (guess.layer != layer) return false;
    const bool right = asked[guess.id] == step;
    score.Add(right);
    Entry& entry = loader.entry(guess.id);
    if (!std::exchange(entry.kept, false)) return true;
    if (entry.phase == Phase::kThere) slots.Release(guess.id);
    wrong_reading |= entry.phase == Phase::kReading;
    return true;
  });
  if (wrong_reading) loader.CancelQueued();
}

// Sorts what is missing as it lies in the files, and decides what of it is to stay.
void ExpertStore::Impl::PlanLargeStep(uint32_t layer) {
  large = to_read.size() > window && step_ids.size() > Share(layer, slots.slots());
  const auto in_file_order = [](const ToRead& a, const ToRead& b) {
    return a.file != b.file ? a.file < b.file : a.offset < b.offset;
  };
  if (large) {
    std::sort(to_read.begin(), to_read.end(), [&](const ToRead& a, const ToRead& b) {
      return a.weight != b.weight ? a.weight > b.weight : in_file_order(a, b);
    });
    // The window's slots are nobody's: what passes next would evict what has just been kept.
    const uint32_t share = Share(layer, slots.slots() - window);
    const uint32_t resident = slots.policy().resident(layer);
    for (uint32_t i = resident; i < share && i - resident < to_read.size(); ++i) {
      to_read[i - resident].keep = true;
    }
    for (const ExpertId id : there) slots.Use(id);  // what was there stays longest
  }
  std::sort(to_read.begin(), to_read.end(), in_file_order);
}

// Begins as many reads as there are slots for.
void ExpertStore::Impl::Pump() {
  while (next_read < to_read.size() && (!large || passing < window)) {
    const ToRead& next = to_read[next_read];
    if (!TakeSlot(next.id)) break;
    Entry& entry = loader.entry(next.id);
    entry.passing = true;
    entry.keep = !large || next.keep;
    ++passing;
    ++next_read;
  }
  loader.Submit();
}

// Demand goes before guesses, and guesses before the layers' floors.
bool ExpertStore::Impl::TakeSlot(ExpertId id) {
  if (loader.Start(id, Purpose::kStep, false)) return true;
  while (YieldGuess()) {
    if (loader.Start(id, Purpose::kStep, false)) return true;
  }
  if (loader.ahead() > 0) loader.CancelQueued();
  return loader.Start(id, Purpose::kStep, true);
}

// The least likely guess that has been read gives up its right to stay.
bool ExpertStore::Impl::YieldGuess() {
  for (size_t i = guesses.size(); i-- > 0;) {
    Entry& entry = loader.entry(guesses[i].id);
    if (!entry.kept || entry.phase != Phase::kThere) continue;
    entry.kept = false;
    slots.Release(guesses[i].id);
    return true;
  }
  return false;
}

void ExpertStore::Impl::ReleaseHanded() {
  for (const ExpertId id : handed) {
    Entry& entry = loader.entry(id);
    if (std::exchange(entry.passing, false)) {
      --passing;
      if (!entry.keep) slots.policy().PutBehindUsed(id, 0);
    }
    slots.Release(id);
  }
  handed.clear();
  group.clear();
}

bool ExpertStore::Impl::TakeNext(bool landed_first, ExpertId* id) {
  const bool from_landed =
      next_landed < loader.landed().size() && (landed_first || next_there == there.size());
  if (!from_landed && next_there == there.size()) return false;
  *id = from_landed ? loader.landed()[next_landed++] : there[next_there++];
  return true;
}

// What is there, into `group`. While reads wait for slots only half of a window, what was read just
// now first: its slots are the next ones to be read into while the other half is computed with.
void ExpertStore::Impl::TakeGroup() {
  const bool tight = next_read < to_read.size();
  const size_t most = tight ? std::max<size_t>(1, window / 2) : SIZE_MAX;
  ExpertId id = 0;
  while (group.size() < most && TakeNext(tight, &id)) {
    if (!loader.Check(id)) continue;
    handed.push_back(id);
    group.push_back(loader.Loaded(id));
  }
  loader.Submit();  // what is read again
}

std::span<const LoadedExpert> ExpertStore::Impl::NextGroup() {
  if (over) throw Error(ErrorCode::kInternal, "no step of experts goes on");
  ReleaseHanded();
  loader.Poll(false);
  for (;;) {
    if (std::optional<Error> failure = loader.TakeFailure()) throw Error(*failure);
    Pump();
    TakeGroup();
    if (!group.empty()) return group;
    if (loader.wanted() == 0 && next_read == to_read.size()) return {};
    if (loader.pending() == 0) throw Error(ErrorCode::kInternal, "no slot for an expert");
    const auto start = std::chrono::steady_clock::now();
    loader.Poll(true);
    stats.wait_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
}

void ExpertStore::Impl::Abandon() {
  ReleaseHanded();
  for (; next_there < there.size(); ++next_there) slots.Release(there[next_there]);
  std::vector<ExpertId>& landed = loader.landed();
  for (; next_landed < landed.size(); ++next_landed) slots.Release(landed[next_landed]);
  if (loader.wanted() > 0) {
    for (const ExpertId id : step_ids) loader.Unwant(id);
  }
  if (passing > 0) {
    for (const ExpertId id : step_ids) loader.entry(id).passing = false;
  }
  loader.TakeFailure();
  step_ids.clear();
  there.clear();
  landed.clear();
  to_read.clear();
  next_there = next_landed = next_read = 0;
  passing = 0;
  large = false;
  over = true;
}

void ExpertStore::Impl::Prefetch(uint32_t layer, std::span<const uint32_t> experts) {
  const size_t most = slots.slots() / kGuessShare;
  if (most == 0 || layer >= ids.layers() || next_read < to_read.size()) return;
  loader.Poll(false);
  for (const uint32_t expert : experts) {
    if (expert >= ids.experts(layer)) continue;
    const ExpertId id = ids.id(layer, expert);
    if (loader.entry(id).phase != Phase::kAbsent || IsGuessed(id)) continue;
    if (guesses.size() == most) {
      // Of a layer whose step did not come.
      if (guesses.front().layer == layer) break;
      Entry& oldest = loader.entry(guesses.front().id);
      if (std::exchange(oldest.kept, false) && oldest.phase == Phase::kThere) {
        slots.Release(guesses.front().id);
      }
      guesses.erase(guesses.begin());
    }
    if (score.pays() && !loader.Start(id, Purpose::kGuess, false)) break;
    guesses.push_back({layer, id});
  }
  loader.Submit();
}

void ExpertStore::Impl::Prewarm(std::span<const uint64_t> given) {
  if (given.size() != ids.size()) throw Error(ErrorCode::kUsage, "counts of other experts");
  prior.assign(given.begin(), given.end());
  loader.Poll(false);
  std::vector<ExpertId> order;
  for (ExpertId id = 0; id < ids.size(); ++id) {
    if (prior[id] > 0 && loader.entry(id).phase == Phase::kAbsent) order.push_back(id);
  }
  std::stable_sort(order.begin(), order.end(),
                   [this](ExpertId a, ExpertId b) { return prior[a] > prior[b]; });
  for (const ExpertId id : order) {
    if (slots.used() == slots.slots() || loader.warmed() >= slots.slots() / 2) break;
    if (!loader.Start(id, Purpose::kPrewarm, false)) break;
    if (counts[id] == 0) slots.policy().PutBehindUsed(id, prior[id]);
  }
  loader.Submit();
}

uint64_t ExpertStore::SlotBytes(std::span<const std::vector<StoredExpert>> layers) {
  uint64_t most = 0;
  for (const auto& layer : layers) {
    for (const StoredExpert& expert : layer) most = std::max(most, PlanReads(expert).slot_bytes);
  }
  return most;
}

uint64_t ExpertStore::MinArenaBytes(std::span<const std::vector<StoredExpert>> layers,
                                    uint32_t at_once) {
  size_t most = 0;
  for (const auto& layer : layers) most = std::max(most, layer.size());
  return SlotBytes(layers) * std::min<uint64_t>(std::max<uint32_t>(at_once, 1), most);
}

ExpertStore::ExpertStore(std::vector<std::vector<StoredExpert>> layers, StoreOptions options,
                         const MakeReader& make_reader)
    : impl_(std::make_unique<Impl>(std::move(layers), std::move(options), make_reader)) {}

ExpertStore::~ExpertStore() = default;

uint32_t ExpertStore::slots() const { return impl_->slots.slots(); }

void ExpertStore::Begin(uint32_t layer, std::span<const uint32_t> experts) {
  impl_->Begin(layer, experts);
}

std::span<const LoadedExpert> ExpertStore::Next() {
  try {
    return impl_->NextGroup();
  } catch (...) {
    impl_->Abandon();
    throw;
  }
}

void ExpertStore::Prefetch(uint32_t layer, std::span<const uint32_t> experts) {
  impl_->Prefetch(layer, experts);
}

bool ExpertStore::WantsGuesses() const {
  return impl_->slots.slots() >= kGuessShare &&
         (impl_->score.pays() || impl_->step % kRetrySteps == 0);
}

void ExpertStore::Prewarm(std::span<const uint64_t> counts) { impl_->Prewarm(counts); }

const std::vector<uint64_t>& ExpertStore::counts() const { return impl_->counts; }
const ExpertIds& ExpertStore::ids() const { return impl_->ids; }
StoreStats ExpertStore::stats() const { return impl_->stats; }
const DiskInfo& ExpertStore::disk() const { return impl_->reader->info(); }

void ExpertStore::ResetStats() {
  StoreStats fresh;
  fresh.arena_bytes = impl_->stats.arena_bytes;
  fresh.slots = impl_->stats.slots;
  fresh.experts = impl_->stats.experts;
  impl_->stats = fresh;
}

double StoreStats::hit_rate() const {
  const uint64_t accesses = resident + prefetched + missed;
  return accesses == 0 ? 0.0
                       : static_cast<double>(resident + prefetched) / static_cast<double>(accesses);
}

}  // namespace moewe::experts
