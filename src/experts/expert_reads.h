// How a stored expert comes into a slot of memory: which aligned pieces are read where.
#ifndef MOEWE_EXPERTS_EXPERT_READS_H_
#define MOEWE_EXPERTS_EXPERT_READS_H_

#include <array>
#include <cstdint>
#include <span>

#include "experts/expert_store.h"

namespace moewe::experts {

// One contiguous piece of a file; all but `needed` are multiples of kDiskAlignment.
struct PlannedRead {
  uint32_t file = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;   // may reach beyond the end of the file
  uint64_t needed = 0;  // up to the end of the last part in it
  uint64_t place = 0;   // in the slot
};

struct ReadPlan {
  std::array<PlannedRead, 3> reads;
  uint32_t count = 0;               // of reads; 0 if all parts are empty
  std::array<uint64_t, 3> part_at;  // places of gate, up, down in the slot
  uint64_t slot_bytes = 0;          // what the reads fill
};

// Parts whose pages touch or overlap come with one read. Does not allocate. Throws Error{kBounds}
// for extents whose end does not fit 64 bits.
ReadPlan PlanReads(const StoredExpert& expert);

}  // namespace moewe::experts

#endif  // MOEWE_EXPERTS_EXPERT_READS_H_
