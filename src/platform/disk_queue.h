// Reads that wait for their turn: demand before prefetch, each in order of arrival.
#ifndef MOEWE_PLATFORM_DISK_QUEUE_H_
#define MOEWE_PLATFORM_DISK_QUEUE_H_

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "platform/disk_reader.h"

namespace moewe {

// One thread at a time.
class DiskQueue {
 public:
  void Push(std::span<const DiskRead> reads, DiskUrgency urgency);
  bool empty() const { return demand_.empty() && prefetch_.empty(); }
  DiskRead Pop();  // not of an empty queue

  // Every prefetch of this tag goes behind the demand reads.
  void Promote(uint64_t tag);
  // Removes the prefetches, whose tags are appended; returns how many.
  size_t CancelPrefetches(std::vector<uint64_t>* tags);
  void Clear();

 private:
  std::deque<DiskRead> demand_;
  std::deque<DiskRead> prefetch_;
};

}  // namespace moewe

#endif  // MOEWE_PLATFORM_DISK_QUEUE_H_
