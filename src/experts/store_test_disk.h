// For tests: files of experts in memory and a disk reader over them without threads, of which a
// test says step by step what it does. (tests/fake_disk.h: one with threads and delays.)
#ifndef MOEWE_EXPERTS_STORE_TEST_DISK_H_
#define MOEWE_EXPERTS_STORE_TEST_DISK_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "experts/expert_store.h"

namespace moewe::experts {

using FileBytes = std::vector<std::vector<uint8_t>>;

// What happens to a read: an errno, or 0 and how many bytes of the file there are to read.
using ReadFault = std::function<int(const DiskRead& read)>;

inline DiskResult ReadFrom(const FileBytes& files, const DiskRead& read, const ReadFault& fault) {
  DiskResult result{read.tag, fault ? fault(read) : 0, 0};
  if (result.error != 0) return result;
  const std::vector<uint8_t>& file = files[read.file];
  if (read.offset < file.size()) {
    result.bytes = std::min<uint64_t>(read.bytes, file.size() - read.offset);
    std::memcpy(read.into, file.data() + read.offset, result.bytes);
  }
  return result;
}

// What a test sees and says of its disk.
struct DiskScript {
  FileBytes files;
  ReadFault fault;
  uint32_t depth = 4;
  bool only_when_waited = false;  // a read ends only when somebody waits for one
  std::mt19937 random{1};         // order of results, and how many a call gets
  bool in_order = false;
  std::vector<std::pair<DiskRead, DiskUrgency>> submitted;
  uint64_t submits = 0;
  uint64_t reaps = 0;
  uint64_t waits = 0;
  size_t pending = 0;
};

// Everything happens in the caller's calls, by the script.
class ScriptedDisk : public DiskReader {
 public:
  explicit ScriptedDisk(DiskScript* script) : script_(script) {
    info_.method = "scripted";
    info_.depth = script->depth;
  }

  void Submit(std::span<const DiskRead> reads, DiskUrgency urgency) override {
    ++script_->submits;
    for (const DiskRead& read : reads) {
      EXPECT_EQ(read.offset % kDiskAlignment, 0u);
      EXPECT_EQ(read.bytes % kDiskAlignment, 0u);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(read.into) % kDiskAlignment, 0u);
      EXPECT_LE(read.needed, read.bytes);
      EXPECT_GT(read.needed, 0u);
      script_->submitted.emplace_back(read, urgency);
      (urgency == DiskUrgency::kDemand ? demand_ : ahead_).push_back(read);
    }
    Begin();
  }

  void Reap(bool wait, std::vector<DiskResult>* results) override {
    ++script_->reaps;
    if (wait && pending() > 0) ++script_->waits;
    size_t count = script_->only_when_waited ? 0 : script_->random() % (started_.size() + 1);
    if (wait) count = std::max<size_t>(count, 1);
    for (; count > 0 && !started_.empty(); --count) {
      const size_t at = script_->in_order ? 0 : script_->random() % started_.size();
      results->push_back(ReadFrom(script_->files, started_[at], script_->fault));
      started_.erase(started_.begin() + static_cast<ptrdiff_t>(at));
      Begin();
    }
    script_->pending = pending();
  }

  void CancelQueued(std::vector<uint64_t>* tags) override {
    for (const DiskRead& read : ahead_) tags->push_back(read.tag);
    ahead_.clear();
    script_->pending = pending();
  }

  void Promote(uint64_t tag) override {
    const auto at = std::find_if(ahead_.begin(), ahead_.end(),
                                 [tag](const DiskRead& read) { return read.tag == tag; });
    if (at == ahead_.end()) return;
    demand_.push_back(*at);
    ahead_.erase(at);
    Begin();
  }

  size_t pending() const override { return started_.size() + demand_.size() + ahead_.size(); }
  const DiskInfo& info() const override { return info_; }

 private:
  void Begin() {
    while (started_.size() < script_->depth && !(demand_.empty() && ahead_.empty())) {
      std::deque<DiskRead>& queue = demand_.empty() ? ahead_ : demand_;
      started_.push_back(queue.front());
      queue.pop_front();
    }
    script_->pending = pending();
  }

  DiskScript* const script_;
  DiskInfo info_;
  std::vector<DiskRead> started_;
  std::deque<DiskRead> demand_;
  std::deque<DiskRead> ahead_;
};

// Random bytes with the experts of some layers in them.
struct StoredLayers {
  std::vector<std::vector<StoredExpert>> layers;
  FileBytes files;

  Bytes Part(uint32_t layer, uint32_t expert, size_t part) const {
    const Extent& extent = layers[layer][expert][part];
    return Bytes(files[extent.file])
        .subspan(static_cast<size_t>(extent.offset), static_cast<size_t>(extent.nbytes));
  }
};

enum class ExpertLayout {
  kRecords,  // gate, up, down of an expert together, experts one after the other (.smoe)
  kRoles,    // all gates of a layer, then all ups, then all downs (.cmf)
};

// Sizes of parts are about `part_bytes`, and unequal unless that is a multiple of a page.
inline StoredLayers MakeLayers(const std::vector<uint32_t>& experts, ExpertLayout layout,
                               uint64_t part_bytes, uint32_t num_files, uint32_t seed) {
  std::mt19937 random(seed);
  StoredLayers stored;
  stored.files.resize(num_files);
  stored.layers.resize(experts.size());
  const bool equal = part_bytes % kDiskAlignment == 0;
  const auto add = [&](uint32_t file, Extent* extent) {
    std::vector<uint8_t>& bytes = stored.files[file];
    const uint64_t gap = equal ? 0 : random() % 70;
    *extent = {file, bytes.size() + gap, part_bytes + (equal ? 0 : random() % 500)};
    bytes.resize(static_cast<size_t>(extent->offset + extent->nbytes));
  };
  for (uint32_t layer = 0; layer < experts.size(); ++layer) {
    const uint32_t file = layer % num_files;
    stored.layers[layer].resize(experts[layer]);
    for (size_t i = 0; i < size_t{3} * experts[layer]; ++i) {
      const bool records = layout == ExpertLayout::kRecords;
      const size_t expert = records ? i / 3 : i % experts[layer];
      add(file, &stored.layers[layer][expert][records ? i % 3 : i / experts[layer]]);
    }
  }
  for (std::vector<uint8_t>& file : stored.files) {
    for (uint8_t& byte : file) byte = static_cast<uint8_t>(random());
  }
  return stored;
}

}  // namespace moewe::experts

#endif  // MOEWE_EXPERTS_STORE_TEST_DISK_H_
