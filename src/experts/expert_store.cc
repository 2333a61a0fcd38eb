#include "experts/expert_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "experts/expert_store_impl.h"
#include "moewe/error.h"

namespace moewe::experts {
namespace {

using Entry = ExpertLoader::Entry;
using Phase = ExpertLoader::Phase;
using Purpose = ExpertLoader::Purpose;

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

void ExpertStore::Impl::Prefetch(uint32_t layer, std::span<const uint32_t> experts) {
  const size_t most = slots.slots() / kGuessShare;
  if (most == 0 || layer >= ids.layers() || next_read < to_read.size()) return;
  loader.Poll(false);
  TakeBackGuesses(layer, experts);
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

// A later look at a layer knows more: what it does not repeat is not read, unless that has begun.
void ExpertStore::Impl::TakeBackGuesses(uint32_t layer, std::span<const uint32_t> experts) {
  const bool wrong = std::any_of(guesses.begin(), guesses.end(), [&](const Guess& guess) {
    return guess.layer == layer && loader.entry(guess.id).phase == Phase::kReading &&
           std::find(experts.begin(), experts.end(), guess.id - ids.id(layer, 0)) == experts.end();
  });
  if (!wrong) return;
  loader.CancelQueued();
  std::erase_if(guesses, [&](const Guess& guess) {
    return guess.layer == layer && score.pays() && loader.entry(guess.id).phase == Phase::kAbsent;
  });
  // The reader takes back all that has not begun. Other layers' guesses go on, but for one that has
  // half begun.
  for (const Guess& guess : guesses) {
    if (score.pays() && loader.entry(guess.id).phase == Phase::kAbsent) {
      loader.Start(guess.id, Purpose::kGuess, false);
    }
  }
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

void ExpertStore::Idle() { impl_->loader.Poll(false); }

const std::vector<uint64_t>& ExpertStore::counts() const { return impl_->counts; }
const ExpertIds& ExpertStore::ids() const { return impl_->ids; }
std::span<const std::vector<StoredExpert>> ExpertStore::layers() const { return impl_->layers; }
StoreStats ExpertStore::stats() const { return impl_->stats; }
const DiskInfo& ExpertStore::disk() const { return impl_->reader->info(); }

void ExpertStore::ResetStats() {
  StoreStats fresh;
  fresh.arena_bytes = impl_->stats.arena_bytes;
  fresh.slots = impl_->stats.slots;
  fresh.experts = impl_->stats.experts;
  impl_->stats = fresh;
  std::fill(impl_->counts.begin(), impl_->counts.end(), 0);
}

double StoreStats::hit_rate() const {
  const uint64_t accesses = resident + prefetched + missed;
  return accesses == 0 ? 0.0
                       : static_cast<double>(resident + prefetched) / static_cast<double>(accesses);
}

}  // namespace moewe::experts
