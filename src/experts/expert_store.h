// Routed experts that do not all fit in memory: an arena of equal slots, filled from disk.
//
// A layer's step asks for its experts with Begin; all missing ones are read at once, and Next hands
// them out as they are there: first those that were resident, then the others as their reads end.
// So the caller computes while the disk works. What a caller computes with them must not depend on
// the order.
//
// A step that needs many experts (a prompt's chunk) has them pass through a window of slots in file
// order, each read once: the next ones are read while the last handed-out ones are computed with.
// That is so if more are missing than the window holds (a quarter of the slots or 64 MiB, the
// lesser, but at least 16 slots) and the step is larger than its layer's share of the slots. Of
// what has passed, the layer keeps the most often used up to its share of the slots beside the
// window; the others are the next to be evicted. So a prompt costs the resident experts of other
// layers a window's worth of slots, not all of them.
#ifndef MOEWE_EXPERTS_EXPERT_STORE_H_
#define MOEWE_EXPERTS_EXPERT_STORE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/byte_reader.h"
#include "experts/cache_policy.h"
#include "platform/disk_reader.h"

namespace moewe::experts {

// Stored bytes of one matrix.
struct Extent {
  uint32_t file = 0;  // index into the files of the disk reader
  uint64_t offset = 0;
  uint64_t nbytes = 0;
};

// Gate, up, down. Extents that touch or share a page are read at once.
using StoredExpert = std::array<Extent, 3>;

struct LoadedExpert {
  uint32_t expert = 0;         // in its layer
  uint32_t slot = 0;           // below slots()
  std::array<Bytes, 3> parts;  // gate, up, down
};

// Called once for every read of an expert, before it is handed out, on the caller's thread: to
// check bytes. An Error from it counts like a failed read.
using ExpertCheck = std::function<void(uint32_t layer, const LoadedExpert& expert)>;

struct StoreOptions {
  uint64_t arena_bytes = 0;  // at least MinArenaBytes
  // An evicted expert's layer keeps at least so many, as far as there is room; 0 = plain LRU.
  uint32_t floor = 0;
  ExpertCheck check;
  std::vector<std::string> files;  // names of the reader's files, for messages
};

struct StoreStats {
  uint64_t arena_bytes = 0;
  uint32_t slots = 0;
  uint64_t experts = 0;     // in all layers
  uint64_t resident = 0;    // accesses to an expert that was in the arena because it had been used
  uint64_t prefetched = 0;  // ... because it had been foreseen: read, or the read submitted
  uint64_t missed = 0;      // accesses that had to be read for
  uint64_t prefetch_reads = 0;   // experts read ahead, by Prefetch and Prewarm ...
  uint64_t prefetch_unused = 0;  // ... and evicted without having been used
  uint64_t bytes_read = 0;       // of both kinds, as read from disk, whole pages
  uint64_t bytes_demanded = 0;   // of them, for misses
  uint64_t retries = 0;
  double wait_seconds = 0.0;  // that Next blocked for the disk
  // That reads were on their way, until their end was noticed; up to the last time that none was.
  // What is not waited for of it was hidden behind computing.
  double busy_seconds = 0.0;
  double hidden_seconds() const { return std::max(0.0, busy_seconds - wait_seconds); }
  double hit_rate() const;  // of accesses, what was not missed; 0 without any
};

// One thread at a time; all of the store's own work is done in its caller's calls. A step whose
// experts are all resident neither allocates nor enters the kernel.
class ExpertStore {
 public:
  // The bytes of the least arena that is of use: it holds `at_once` experts (the largest top_k), or
  // those of the largest layer if that has fewer. A single slot works too, without any overlap.
  static uint64_t MinArenaBytes(std::span<const std::vector<StoredExpert>> layers,
                                uint32_t at_once);
  // Of a slot: the largest expert with its pages' edges.
  static uint64_t SlotBytes(std::span<const std::vector<StoredExpert>> layers);

  // `layers`: experts of each layer, in order; none for a layer without any. `make_reader` is given
  // the arena's memory. Throws Error{kUsage} for an arena without a slot and for an expert without
  // bytes, {kOutOfBudget} if the memory can't be had.
  using MakeReader = std::function<std::unique_ptr<DiskReader>(std::span<uint8_t> memory)>;
  ExpertStore(std::vector<std::vector<StoredExpert>> layers, StoreOptions options,
              const MakeReader& make_reader);
  ~ExpertStore();

  uint32_t slots() const;

  // Starts a layer's step: `experts` ascending, each once. What an earlier step left unfinished (an
  // exception came between) is given up.
  void Begin(uint32_t layer, std::span<const uint32_t> experts);

  // The next experts of the step, which stay in place until the next call of Next or Begin; waits
  // for the disk if none is there. Empty = all were handed out. Throws Error{kIo} naming file,
  // layer, expert and offset for a read that failed twice, and what the check threw the second
  // time; then the step is over, and the next Begin works.
  std::span<const LoadedExpert> Next();

  // Experts of `layer` that its next step will likely ask for, most likely first: read while no
  // demand read waits, into slots that the policy gives away, at most a quarter of all. They stay
  // until that step, unless demand needs their slots. Called again for the same step, with a better
  // guess, it takes back what is not repeated and has not begun. Reads nothing while guesses prove
  // wrong too often to be worth the disk's time, but goes on scoring them.
  void Prefetch(uint32_t layer, std::span<const uint32_t> experts);

  // Whether Prefetch is worth a guess at the next step: while guesses are given up, only now and
  // then.
  bool WantsGuesses() const;

  // Fills free slots in the background, at lowest priority, with the experts of the highest counts,
  // up to half of the slots; for the start, and whenever there is nothing to do for a while. The
  // next step that misses an expert takes back what has not begun. counts: one an expert, by
  // ExpertIds.
  void Prewarm(std::span<const uint64_t> counts);

  // Lets background reads go on where the disk reader has no threads of its own; cheap. For who
  // waits or works for long without another call.
  void Idle();

  // Accesses so far (since ResetStats), one an expert, by ExpertIds.
  const std::vector<uint64_t>& counts() const;
  const ExpertIds& ids() const;

  // Where experts lie, by layer.
  std::span<const std::vector<StoredExpert>> layers() const;

  StoreStats stats() const;
  void ResetStats();  // and counts()
  const DiskInfo& disk() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moewe::experts

#endif  // MOEWE_EXPERTS_EXPERT_STORE_H_
