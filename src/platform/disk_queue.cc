#include "platform/disk_queue.h"

#include <algorithm>

namespace moewe {

void DiskQueue::Push(std::span<const DiskRead> reads, DiskUrgency urgency) {
  std::deque<DiskRead>& queue = urgency == DiskUrgency::kDemand ? demand_ : prefetch_;
  queue.insert(queue.end(), reads.begin(), reads.end());
}

DiskRead DiskQueue::Pop() {
  std::deque<DiskRead>& queue = demand_.empty() ? prefetch_ : demand_;
  const DiskRead read = queue.front();
  queue.pop_front();
  return read;
}

void DiskQueue::Promote(uint64_t tag) {
  const auto promoted = std::stable_partition(
      prefetch_.begin(), prefetch_.end(), [tag](const DiskRead& read) { return read.tag != tag; });
  demand_.insert(demand_.end(), promoted, prefetch_.end());
  prefetch_.erase(promoted, prefetch_.end());
}

size_t DiskQueue::CancelPrefetches(std::vector<uint64_t>* tags) {
  const size_t count = prefetch_.size();
  for (const DiskRead& read : prefetch_) tags->push_back(read.tag);
  prefetch_.clear();
  return count;
}

void DiskQueue::Clear() {
  demand_.clear();
  prefetch_.clear();
}

}  // namespace moewe
