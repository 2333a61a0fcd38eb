// What is in each slot of a store of experts, and the reads that fill them.
//
// An expert is absent, being read, or there. While it is read, its slot is held, so that nobody
// evicts it; when the last of its reads has ended, the hold passes to whoever waits for it. A read
// that fails is repeated once, if somebody waits.
#ifndef MOEWE_EXPERTS_EXPERT_LOADER_H_
#define MOEWE_EXPERTS_EXPERT_LOADER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "experts/expert_reads.h"
#include "experts/expert_slots.h"
#include "experts/expert_store.h"
#include "moewe/error.h"
#include "platform/disk_reader.h"

namespace moewe::experts {

// One thread at a time. References must outlive the loader.
class ExpertLoader {
 public:
  enum class Phase : uint8_t { kAbsent, kReading, kThere };
  enum class Purpose : uint8_t { kStep, kGuess, kPrewarm };

  struct Entry {
    Phase phase = Phase::kAbsent;
    uint8_t pending = 0;  // its reads that the disk reader has, a bit each
    uint8_t lacking = 0;  // ... that failed or were taken back
    uint8_t failed = 0;   // ... of those that failed
    uint8_t retried = 0;  // ... that are done again
    bool wanted = false;  // the step waits for it
    bool kept = false;    // a guess, held until its layer's step
    bool ahead = false;   // read before it was asked for
    bool unused = false;  // ... and not asked for since
    bool warmed = false;  // ... by prewarming
    bool checked = false;
    bool rechecked = false;  // its check failed once
    bool passing = false;    // read for the step that goes on
    bool keep = false;       // ... and to be kept after it
    uint32_t slot = 0;
  };

  ExpertLoader(const std::vector<std::vector<StoredExpert>>& layers, const ExpertIds& ids,
               const StoreOptions& options, uint64_t slot_bytes, std::span<uint8_t> memory,
               ExpertSlots* slots, DiskReader* reader, StoreStats* stats);

  Entry& entry(ExpertId id) { return entries_[id]; }

  // Takes a slot for an absent expert and prepares its reads; false if there is none.
  bool Start(ExpertId id, Purpose purpose, bool below_floor);
  // One that is being read is waited for from now on.
  void Want(ExpertId id);
  // Nobody waits for it any longer.
  void Unwant(ExpertId id);
  // Hands all prepared reads to the disk reader.
  void Submit();

  // Takes the results of reads that have ended; with `wait` at least one. What is there now and was
  // wanted is appended to landed(), held.
  void Poll(bool wait);
  std::vector<ExpertId>& landed() { return landed_; }
  // Of a wanted expert's read that failed twice, or nothing; the expert is not wanted any longer.
  std::optional<Error> TakeFailure() { return std::exchange(failure_, std::nullopt); }

  // Takes back what was submitted ahead and has not begun.
  void CancelQueued();

  // Runs the check, if there is one and it did not see these bytes yet. False: it failed for the
  // first time, the expert is read again and wanted. Throws what it threw for the second time; then
  // the expert is absent.
  bool Check(ExpertId id);

  LoadedExpert Loaded(ExpertId id) const;

  uint32_t wanted() const { return wanted_; }  // experts
  uint32_t ahead() const { return ahead_; }    // being read and not wanted
  uint32_t warmed() const { return warmed_; }  // prewarmed and not used so far
  size_t pending() const { return reader_->pending(); }

  // An access to an expert that is there or being read: it is no guess any longer.
  void MarkUsed(ExpertId id);

 private:
  ReadPlan PlanOf(ExpertId id) const;
  void NoteIdle();
  void Prepare(ExpertId id, uint8_t reads, std::vector<DiskRead>* list);
  void Repeat(ExpertId id);  // what is lacking of a wanted expert
  void Take(const DiskResult& result);
  void Settle(ExpertId id);  // after the last of its pending reads
  void Land(ExpertId id);
  void Drop(ExpertId id);
  Error FailureOf(ExpertId id, const PlannedRead& read, const DiskResult& result) const;

  const std::vector<std::vector<StoredExpert>>& layers_;
  const ExpertIds& ids_;
  const StoreOptions& options_;
  const uint64_t slot_bytes_;
  const std::span<uint8_t> memory_;
  ExpertSlots* const slots_;
  DiskReader* const reader_;
  StoreStats* const stats_;

  std::vector<Entry> entries_;  // by id
  std::vector<ExpertId> landed_;
  std::optional<Error> failure_;
  uint32_t wanted_ = 0;
  uint32_t ahead_ = 0;
  uint32_t warmed_ = 0;
  std::chrono::steady_clock::time_point busy_since_;  // while something is pending
  std::vector<DiskRead> demand_reads_;                // prepared
  std::vector<DiskRead> ahead_reads_;
  std::vector<DiskResult> results_;
  std::vector<uint64_t> cancelled_;
};

}  // namespace moewe::experts

#endif  // MOEWE_EXPERTS_EXPERT_LOADER_H_
