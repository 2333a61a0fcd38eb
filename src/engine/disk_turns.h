// How fast a disk gives a streamed model's experts, measured a little at a time beside decoding.
#ifndef MOEWE_ENGINE_DISK_TURNS_H_
#define MOEWE_ENGINE_DISK_TURNS_H_

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "experts/expert_reads.h"
#include "model/model.h"
#include "platform/disk_reader.h"
#include "platform/huge_memory.h"

namespace moewe::engine {

// One thread at a time.
class DiskTurns {
 public:
  // Memory that it takes at most, unless a single read is larger.
  static constexpr uint64_t kMostMemory = uint64_t{8} << 20;
  static constexpr uint32_t kDepth = 32;  // reads, or pieces of them, in flight

  // What the reads of these experts, by layer, go into.
  using Experts = std::span<const std::vector<experts::StoredExpert>>;
  static uint64_t MemoryFor(Experts layers);

  // `model` is streamed, with the disk that its statistics name. Throws what opening its files
  // throws.
  explicit DiskTurns(const model::Model& model);

  // Reads experts at random for about so long, past the store, with as many reads in flight as the
  // memory allows: what the disk can give, not what a depth that was chosen lets through. Throws
  // Error{kIo}.
  void Turn(double seconds);

  // Over all turns since the last call; 0 without any.
  double TakeBytesPerSecond();
  // Mean of the reads that an expert takes.
  uint64_t read_bytes() const { return read_bytes_; }
  uint64_t bytes_of_all() const { return bytes_of_all_; }  // experts, as they are read

 private:
  DiskRead ReadOf(uint64_t slot);  // of an expert at random, but for the tag

  std::vector<experts::PlannedRead> reads_;  // of all experts
  uint64_t read_bytes_ = 0;
  uint64_t bytes_of_all_ = 0;
  uint64_t slot_bytes_ = 0;
  std::unique_ptr<HugeMemory> memory_;
  std::unique_ptr<DiskReader> reader_;  // before the memory goes, it waits for its reads
  std::mt19937_64 random_{1};
  uint64_t bytes_ = 0;
  double seconds_ = 0.0;
};

}  // namespace moewe::engine

#endif  // MOEWE_ENGINE_DISK_TURNS_H_
