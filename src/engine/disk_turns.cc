#include "engine/disk_turns.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "moewe/error.h"
#include "platform/timed_reads.h"

namespace moewe::engine {
DiskTurns::DiskTurns(const model::Model& model) {
  for (const auto& layer : model.streamed_experts()) {
    for (const experts::StoredExpert& expert : layer) {
      const experts::ReadPlan plan = experts::PlanReads(expert);
      for (uint32_t i = 0; i < plan.count; ++i) {
        reads_.push_back(plan.reads[i]);
        slot_bytes_ = std::max(slot_bytes_, plan.reads[i].bytes);
        bytes_of_all_ += plan.reads[i].bytes;
      }
    }
  }
  const std::optional<model::StreamStats> stats = model.stream_stats();
  if (reads_.empty() || !stats) {
    throw Error(ErrorCode::kInternal, "a disk is measured that nothing is read from");
  }
  read_bytes_ = bytes_of_all_ / reads_.size();
  DiskOptions options;
  options.method =
      stats->disk.method == "io_uring" ? DiskOptions::Method::kUring : DiskOptions::Method::kPread;
  options.direct = stats->disk.direct;
  options.depth = kDepth;
  const uint64_t slots = std::clamp<uint64_t>(kMostMemory / slot_bytes_, 1, kDepth);
  memory_ = std::make_unique<HugeMemory>(slots * slot_bytes_);
  reader_ = OpenDiskReader(model.checkpoint().files(), options);
}

DiskRead DiskTurns::ReadOf(uint64_t slot) {
  const experts::PlannedRead& read = reads_[random_() % reads_.size()];
  DiskRead one;
  one.file = read.file;
  one.offset = read.offset;
  one.bytes = read.bytes;
  one.into = memory_->memory().data() + slot * slot_bytes_;
  one.needed = read.needed;
  return one;
}

void DiskTurns::Turn(double seconds) {
  const TimedReads reads = ReadForAWhile(reader_.get(), memory_->memory().size() / slot_bytes_,
                                         seconds, [this](uint64_t slot) { return ReadOf(slot); });
  bytes_ += reads.bytes;
  seconds_ += reads.seconds;
}

double DiskTurns::TakeBytesPerSecond() {
  const double bytes = static_cast<double>(std::exchange(bytes_, 0));
  const double seconds = std::exchange(seconds_, 0.0);
  return seconds > 0.0 ? bytes / seconds : 0.0;
}

}  // namespace moewe::engine
