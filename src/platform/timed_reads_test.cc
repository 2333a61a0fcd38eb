// Reads for a while: always as many in flight, what comes in time counts, faults leave nothing
// behind.
#include "platform/timed_reads.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "fake_disk.h"
#include "platform/disk_pages.h"

namespace moewe {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr uint64_t kBytes = 2 * kDiskAlignment;
constexpr uint64_t kPlaces = 16;

class TimedReadsTest : public testing::Test {
 protected:
  TimedReadsTest() : memory_(AllocateDiskMemory(8 * kBytes)) {
    disk_->AddFile(std::vector<uint8_t>(kPlaces * kBytes, 7));
  }

  TimedReads Read(DiskReader* reader, uint64_t slots, double seconds) {
    return ReadForAWhile(reader, slots, seconds,
                         [this](uint64_t slot) {
                           slots_seen_.insert(slot);
                           return DiskRead{0,      asked_++ % kPlaces * kBytes,
                                           kBytes, memory_.get() + slot * kBytes,
                                           kBytes, /*tag=*/99};
                         },
                         {"the file", "", {}});
  }

  std::shared_ptr<FakeDisk> disk_ = std::make_shared<FakeDisk>();
  const DiskMemory memory_;
  std::set<uint64_t> slots_seen_;
  uint64_t asked_ = 0;
};

TEST_F(TimedReadsTest, KeepsItsReadsInFlightUntilTheTimeIsOver) {
  const FakeDiskOptions slow{
      .seed = 5, .depth = 3, .least = milliseconds(1), .most = milliseconds(2)};
  const auto reader = disk_->MakeReader(slow);
  const auto begin = std::chrono::steady_clock::now();
  const TimedReads reads = Read(reader.get(), 3, 0.05);
  const double took =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_EQ(reader->pending(), 0u);
  EXPECT_EQ(slots_seen_, (std::set<uint64_t>{0, 1, 2}));
  EXPECT_EQ(disk_->started().size(), asked_) << "a read was asked for and not made";
  // What ended late was read, too, and does not count; each slot has at most one such.
  EXPECT_EQ(reads.bytes % kBytes, 0u);
  EXPECT_LE(reads.bytes, disk_->bytes_read());
  EXPECT_GE(reads.bytes + 3 * kBytes, disk_->bytes_read());
  EXPECT_GE(reads.bytes, kBytes);
  EXPECT_GT(reads.seconds, 0.0);
  EXPECT_LE(reads.seconds, took);
  EXPECT_LE(reads.seconds, 0.05) << "time after the last read that counts was counted";
}

TEST_F(TimedReadsTest, OneReadThatTakesLongerThanTheTimeIsMeasured) {
  const auto reader = disk_->MakeReader({.least = milliseconds(20), .most = milliseconds(21)});
  const TimedReads reads = Read(reader.get(), 1, 0.001);
  EXPECT_EQ(reads.bytes, kBytes);
  EXPECT_GE(reads.seconds, 0.02);
  EXPECT_EQ(asked_, 1u);
}

TEST_F(TimedReadsTest, AFaultEndsItWithNothingInFlight) {
  disk_->FailReads(0, 5 * kBytes, 1);
  const auto reader =
      disk_->MakeReader({.depth = 4, .least = microseconds(100), .most = milliseconds(1)});
  try {
    Read(reader.get(), 4, 10.0);
    FAIL() << "a read failed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_EQ(error.where().file, "the file");
  }
  EXPECT_EQ(reader->pending(), 0u);
  EXPECT_EQ(disk_->started().size(), asked_);
  EXPECT_LT(asked_, kPlaces) << "it went on for long";
}

TEST_F(TimedReadsTest, NoSlotsReadNothing) {
  const auto reader = disk_->MakeReader();
  EXPECT_EQ(Read(reader.get(), 0, 0.01).bytes, 0u);
  EXPECT_EQ(asked_, 0u);
}

}  // namespace
}  // namespace moewe
