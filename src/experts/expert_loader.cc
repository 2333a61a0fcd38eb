#include "experts/expert_loader.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace moewe::experts {
namespace {

// A read's tag: the expert and which of its reads.
constexpr uint32_t kReadsPerTag = 4;
uint64_t TagOf(ExpertId id, uint32_t read) { return uint64_t{id} * kReadsPerTag + read; }
ExpertId IdOf(uint64_t tag) { return static_cast<ExpertId>(tag / kReadsPerTag); }
uint32_t ReadOf(uint64_t tag) { return static_cast<uint32_t>(tag % kReadsPerTag); }

uint8_t Bit(uint32_t read) { return static_cast<uint8_t>(1u << read); }
uint8_t AllReads(const ReadPlan& plan) { return static_cast<uint8_t>((1u << plan.count) - 1); }

void Clear(uint8_t* set, uint8_t bits) { *set = static_cast<uint8_t>(*set & ~bits); }

}  // namespace

ExpertLoader::ExpertLoader(const std::vector<std::vector<StoredExpert>>& layers,
                           const ExpertIds& ids, const StoreOptions& options, uint64_t slot_bytes,
                           std::span<uint8_t> memory, ExpertSlots* slots, DiskReader* reader,
                           StoreStats* stats)
    : layers_(layers),
      ids_(ids),
      options_(options),
      slot_bytes_(slot_bytes),
      memory_(memory),
      slots_(slots),
      reader_(reader),
      stats_(stats),
      entries_(ids.size()) {}

ReadPlan ExpertLoader::PlanOf(ExpertId id) const {
  const uint32_t layer = ids_.layer(id);
  return PlanReads(layers_[layer][id - ids_.id(layer, 0)]);
}

void ExpertLoader::Prepare(ExpertId id, uint8_t reads, std::vector<DiskRead>* list) {
  Entry& entry = entries_[id];
  const ReadPlan plan = PlanOf(id);
  for (uint32_t i = 0; i < plan.count; ++i) {
    if ((reads & Bit(i)) == 0) continue;
    const PlannedRead& read = plan.reads[i];
    list->push_back({.file = read.file,
                     .offset = read.offset,
                     .bytes = read.bytes,
                     .into = memory_.data() + entry.slot * slot_bytes_ + read.place,
                     .needed = read.needed,
                     .tag = TagOf(id, i)});
    entry.pending |= Bit(i);
  }
}

bool ExpertLoader::Start(ExpertId id, Purpose purpose, bool below_floor) {
  const std::optional<ExpertSlots::Taken> taken = slots_->Take(id, below_floor);
  if (!taken) return false;
  if (taken->evicted) {
    Entry& old = entries_[*taken->evicted];
    if (old.unused) ++stats_->prefetch_unused;
    if (old.warmed) --warmed_;
    old = Entry();
  }
  Entry& entry = entries_[id];
  entry = Entry();
  entry.phase = Phase::kReading;
  entry.slot = taken->slot;
  if (purpose == Purpose::kStep) {
    entry.wanted = true;
    ++wanted_;
  } else {
    entry.ahead = entry.unused = true;
    ++ahead_;
    entry.kept = purpose == Purpose::kGuess;
    entry.warmed = purpose == Purpose::kPrewarm;
    if (entry.warmed) ++warmed_;
  }
  Prepare(id, AllReads(PlanOf(id)), purpose == Purpose::kStep ? &demand_reads_ : &ahead_reads_);
  return true;
}

void ExpertLoader::MarkUsed(ExpertId id) {
  Entry& entry = entries_[id];
  entry.unused = false;
  if (std::exchange(entry.warmed, false)) --warmed_;
}

void ExpertLoader::Want(ExpertId id) {
  Entry& entry = entries_[id];
  entry.wanted = true;
  entry.kept = false;
  entry.failed = entry.retried = 0;  // what failed before counts for whoever waited then
  entry.rechecked = false;
  ++wanted_;
  --ahead_;
  for (uint32_t i = 0; entry.ahead && i < kReadsPerTag; ++i) {
    if ((entry.pending & Bit(i)) != 0) reader_->Promote(TagOf(id, i));
  }
  Repeat(id);
}

void ExpertLoader::Unwant(ExpertId id) {
  Entry& entry = entries_[id];
  if (!std::exchange(entry.wanted, false)) return;
  --wanted_;
  ++ahead_;
}

void ExpertLoader::Repeat(ExpertId id) {
  Entry& entry = entries_[id];
  const uint8_t again = std::exchange(entry.lacking, uint8_t{0});
  if (again == 0) return;
  for (uint32_t i = 0; i < kReadsPerTag; ++i) {
    if ((entry.failed & Bit(i)) != 0) ++stats_->retries;
  }
  entry.retried |= std::exchange(entry.failed, uint8_t{0});
  Prepare(id, again, &demand_reads_);
}

void ExpertLoader::Submit() {
  if (demand_reads_.empty() && ahead_reads_.empty()) return;
  if (reader_->pending() == 0) busy_since_ = std::chrono::steady_clock::now();
  if (!demand_reads_.empty()) reader_->Submit(demand_reads_, DiskUrgency::kDemand);
  demand_reads_.clear();
  if (!ahead_reads_.empty()) reader_->Submit(ahead_reads_, DiskUrgency::kPrefetch);
  ahead_reads_.clear();
}

// After something that was pending has gone.
void ExpertLoader::NoteIdle() {
  if (reader_->pending() != 0) return;
  stats_->busy_seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - busy_since_).count();
}

void ExpertLoader::Poll(bool wait) {
  if (reader_->pending() == 0) return;
  results_.clear();
  reader_->Reap(wait, &results_);
  NoteIdle();
  for (const DiskResult& result : results_) Take(result);
  Submit();  // what is read again
}

void ExpertLoader::CancelQueued() {
  if (ahead_ == 0) return;
  cancelled_.clear();
  const bool was_busy = reader_->pending() != 0;
  reader_->CancelQueued(&cancelled_);
  if (was_busy) NoteIdle();
  for (const uint64_t tag : cancelled_) {
    Entry& entry = entries_[IdOf(tag)];
    Clear(&entry.pending, Bit(ReadOf(tag)));
    entry.lacking |= Bit(ReadOf(tag));
    Settle(IdOf(tag));
  }
}

void ExpertLoader::Take(const DiskResult& result) {
  const ExpertId id = IdOf(result.tag);
  const uint8_t bit = Bit(ReadOf(result.tag));
  Entry& entry = entries_[id];
  Clear(&entry.pending, bit);
  stats_->bytes_read += result.bytes;
  if (!entry.ahead) stats_->bytes_demanded += result.bytes;
  const ReadPlan plan = PlanOf(id);
  const PlannedRead& read = plan.reads[ReadOf(result.tag)];
  if (!result.ok(read.needed)) {
    entry.lacking |= bit;
    entry.failed |= bit;
    if (entry.wanted && (entry.retried & bit) != 0) {
      if (!failure_) failure_ = FailureOf(id, read, result);
      Unwant(id);
    }
  }
  Settle(id);
}

void ExpertLoader::Settle(ExpertId id) {
  const Entry& entry = entries_[id];
  if (entry.pending != 0) return;
  if (entry.lacking == 0) {
    Land(id);
  } else if (entry.wanted) {
    Repeat(id);
  } else {
    Drop(id);
  }
}

void ExpertLoader::Land(ExpertId id) {
  Entry& entry = entries_[id];
  entry.phase = Phase::kThere;
  if (entry.ahead) ++stats_->prefetch_reads;
  if (std::exchange(entry.wanted, false)) {
    --wanted_;
    landed_.push_back(id);
    return;
  }
  --ahead_;
  if (!entry.kept) slots_->Release(id);
}

void ExpertLoader::Drop(ExpertId id) {
  Entry& entry = entries_[id];
  if (entry.phase == Phase::kReading) --(entry.wanted ? wanted_ : ahead_);
  if (entry.warmed) --warmed_;
  entry = Entry();
  slots_->Drop(id);
}

bool ExpertLoader::Check(ExpertId id) {
  Entry& entry = entries_[id];
  if (entry.checked || !options_.check) return true;
  try {
    options_.check(ids_.layer(id), Loaded(id));
    entry.checked = true;
    Poll(false);  // that took its time: the disk should not wait for its next reads
    return true;
  } catch (const Error&) {
    if (entry.rechecked) {
      Drop(id);
      throw;
    }
  } catch (...) {
    Drop(id);
    throw;
  }
  entry.rechecked = true;
  entry.phase = Phase::kReading;
  entry.ahead = false;
  entry.wanted = true;
  ++wanted_;
  ++stats_->retries;
  Prepare(id, AllReads(PlanOf(id)), &demand_reads_);
  return false;
}

LoadedExpert ExpertLoader::Loaded(ExpertId id) const {
  const uint32_t layer = ids_.layer(id);
  LoadedExpert loaded;
  loaded.expert = id - ids_.id(layer, 0);
  loaded.slot = entries_[id].slot;
  const StoredExpert& stored = layers_[layer][loaded.expert];
  const ReadPlan plan = PlanReads(stored);
  const uint8_t* slot = memory_.data() + loaded.slot * slot_bytes_;
  for (size_t i = 0; i < loaded.parts.size(); ++i) {
    loaded.parts[i] = {slot + plan.part_at[i], static_cast<size_t>(stored[i].nbytes)};
  }
  return loaded;
}

Error ExpertLoader::FailureOf(ExpertId id, const PlannedRead& read,
                              const DiskResult& result) const {
  const uint32_t layer = ids_.layer(id);
  const std::string name = fmt::format("layer {}, expert {}", layer, id - ids_.id(layer, 0));
  const std::string problem =
      result.error != 0 ? std::string(std::strerror(result.error))
                        : fmt::format("the file ends {} bytes early", read.needed - result.bytes);
  const std::string file = read.file < options_.files.size() ? options_.files[read.file]
                                                             : fmt::format("file {}", read.file);
  return Error(ErrorCode::kIo, fmt::format("cannot read {}: {}", name, problem),
               {file, name, read.offset});
}

}  // namespace moewe::experts
