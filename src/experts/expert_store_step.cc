// A step of the store of experts: asked for, read, handed out, released.
#include <algorithm>
#include <chrono>
#include <utility>

#include "experts/expert_store_impl.h"
#include "moewe/error.h"

namespace moewe::experts {

using Entry = ExpertLoader::Entry;
using Phase = ExpertLoader::Phase;
using Purpose = ExpertLoader::Purpose;

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
  if (!to_read.empty()) {
    loader.CancelQueued();
    PlanLargeStep(layer);
    Pump();
  }
  loader.Submit();
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

}  // namespace moewe::experts
