#include "engine/disk_turns.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "moewe/error.h"
#include "platform/timed_reads.h"

namespace moewe::engine {
namespace {

// Every read of every expert.
std::vector<experts::PlannedRead> ReadsOf(DiskTurns::Experts layers) {
  std::vector<experts::PlannedRead> reads;
  for (const auto& layer : layers) {
    for (const experts::StoredExpert& expert : layer) {
      const experts::ReadPlan plan = experts::PlanReads(expert);
      reads.insert(reads.end(), plan.reads.begin(), plan.reads.begin() + plan.count);
    }
  }
  return reads;
}

uint64_t Largest(std::span<const experts::PlannedRead> reads) {
  uint64_t bytes = 0;
  for (const experts::PlannedRead& read : reads) bytes = std::max(bytes, read.bytes);
  return bytes;
}

uint64_t SlotsOf(uint64_t slot_bytes) {
  return std::clamp<uint64_t>(DiskTurns::kMostMemory / slot_bytes, 1, DiskTurns::kDepth);
}

}  // namespace

uint64_t DiskTurns::MemoryFor(Experts layers) {
  const uint64_t slot_bytes = Largest(ReadsOf(layers));
  return slot_bytes == 0 ? 0 : SlotsOf(slot_bytes) * slot_bytes;
}

DiskTurns::DiskTurns(const model::Model& model)
    : reads_(ReadsOf(model.streamed_experts())), slot_bytes_(Largest(reads_)) {
  for (const experts::PlannedRead& read : reads_) bytes_of_all_ += read.bytes;
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
  memory_ = std::make_unique<HugeMemory>(SlotsOf(slot_bytes_) * slot_bytes_);
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
