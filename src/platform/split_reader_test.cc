// Reads in pieces: one result a read, whatever becomes of its pieces.
#include "platform/split_reader.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "fake_disk.h"
#include "platform/disk_pages.h"

namespace moewe {
namespace {

constexpr uint64_t kPage = kDiskAlignment;
constexpr uint64_t kPiece = 2 * kPage;
constexpr uint64_t kPages = 40;

class SplitReaderTest : public testing::Test {
 protected:
  SplitReaderTest() : memory_(AllocateDiskMemory(kPages * kPage)) {
    for (uint64_t i = 0; i < kPages * kPage; ++i) {
      content_.push_back(static_cast<uint8_t>(i * 7 + i / kPage));
    }
    disk_->AddFile(content_);
  }

  std::unique_ptr<DiskReader> Open(const FakeDiskOptions& options = {}) const {
    return SplitReads(disk_->MakeReader(options), kPiece);
  }
  // To the place in memory that it has in the file.
  DiskRead ReadOf(uint64_t page, uint64_t pages, uint64_t tag) const {
    return {0, page * kPage, pages * kPage, memory_.get() + page * kPage, pages * kPage, tag};
  }
  static std::map<uint64_t, DiskResult> ReapAll(DiskReader* reader) {
    std::map<uint64_t, DiskResult> all;
    std::vector<DiskResult> results;
    while (reader->pending() != 0) {
      results.clear();
      reader->Reap(true, &results);
      EXPECT_FALSE(results.empty()) << "waited for nothing";
      for (const DiskResult& result : results) EXPECT_TRUE(all.emplace(result.tag, result).second);
    }
    return all;
  }
  bool IsThere(uint64_t page, uint64_t pages) const {
    return std::memcmp(memory_.get() + page * kPage, &content_[page * kPage], pages * kPage) == 0;
  }

  std::shared_ptr<FakeDisk> disk_ = std::make_shared<FakeDisk>();
  std::vector<uint8_t> content_;
  const DiskMemory memory_;
};

TEST_F(SplitReaderTest, AReadIsOneWhateverItsSize) {
  for (const uint64_t seed : {1, 2, 3}) {
    std::memset(memory_.get(), 0, kPages * kPage);
    const auto reader = Open({.seed = seed, .depth = 3});
    reader->Submit({{ReadOf(0, 1, 5), ReadOf(1, 2, 6), ReadOf(3, 3, 7), ReadOf(6, 7, 8)}},
                   DiskUrgency::kDemand);
    reader->Submit({{ReadOf(13, 27, 9)}}, DiskUrgency::kPrefetch);
    EXPECT_EQ(reader->pending(), 5u);
    const auto results = ReapAll(reader.get());
    const std::map<uint64_t, uint64_t> pages = {{5, 1}, {6, 2}, {7, 3}, {8, 7}, {9, 27}};
    ASSERT_EQ(results.size(), pages.size());
    for (const auto& [tag, count] : pages) {
      EXPECT_TRUE(results.at(tag).ok(count * kPage));
      EXPECT_EQ(results.at(tag).bytes, count * kPage);
    }
    EXPECT_TRUE(IsThere(0, kPages));
  }
  for (const DiskRead& piece : disk_->started()) EXPECT_LE(piece.bytes, kPiece);
}

TEST_F(SplitReaderTest, AFileThatEndsInTheMiddle) {
  disk_->Resize(0, 5 * kPage + 100);
  const auto reader = Open();
  DiskRead enough = ReadOf(0, 9, 1);
  enough.needed = 5 * kPage + 100;
  DiskRead more = ReadOf(0, 9, 2);
  more.needed = enough.needed + 1;
  reader->Submit({{enough, more}}, DiskUrgency::kDemand);
  const auto results = ReapAll(reader.get());
  EXPECT_TRUE(results.at(1).ok(enough.needed));
  EXPECT_EQ(results.at(2).error, 0);
  EXPECT_EQ(results.at(2).bytes, enough.needed);
  EXPECT_FALSE(results.at(2).ok(more.needed));
}

TEST_F(SplitReaderTest, OneFailedPieceIsAFailedRead) {
  disk_->FailReads(0, 4 * kPage, 1, EIO);
  const auto reader = Open();
  reader->Submit({{ReadOf(0, 9, 1), ReadOf(9, 3, 2)}}, DiskUrgency::kDemand);
  const auto results = ReapAll(reader.get());
  EXPECT_EQ(results.at(1).error, EIO);
  EXPECT_TRUE(results.at(2).ok(3 * kPage));
  reader->Submit({{ReadOf(0, 9, 1)}}, DiskUrgency::kDemand);
  EXPECT_TRUE(ReapAll(reader.get()).at(1).ok(9 * kPage));
}

TEST_F(SplitReaderTest, WhatHasBegunEndsWhatHasNotIsTakenBack) {
  disk_->Stop();
  const auto reader = Open({.depth = 2});
  // Of eight pieces of the first two are on their way.
  reader->Submit({{ReadOf(0, 16, 1), ReadOf(16, 8, 2), ReadOf(24, 8, 3)}}, DiskUrgency::kPrefetch);
  disk_->WaitForStarted(2);
  std::vector<uint64_t> tags;
  reader->CancelQueued(&tags);
  EXPECT_EQ(tags, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(reader->pending(), 1u);
  // Demand comes before the rest of what has begun.
  reader->Submit({{ReadOf(32, 4, 4)}}, DiskUrgency::kDemand);
  disk_->Go();
  const auto results = ReapAll(reader.get());
  ASSERT_EQ(results.size(), 2u);
  EXPECT_TRUE(results.at(1).ok(16 * kPage));
  EXPECT_TRUE(results.at(4).ok(4 * kPage));
  EXPECT_TRUE(IsThere(0, 16));
  const std::vector<DiskRead> started = disk_->started();
  ASSERT_EQ(started.size(), 8u + 2u);
  EXPECT_EQ(started[2].offset, 32 * kPage);
  EXPECT_EQ(started[4].offset, 4 * kPage);
}

TEST_F(SplitReaderTest, AllPiecesArePromoted) {
  disk_->Stop();
  const auto reader = Open({.depth = 1});
  reader->Submit({{ReadOf(0, 2, 1), ReadOf(2, 4, 2), ReadOf(6, 6, 3)}}, DiskUrgency::kPrefetch);
  disk_->WaitForStarted(1);
  reader->Promote(3);
  disk_->Go();
  EXPECT_EQ(ReapAll(reader.get()).size(), 3u);
  const std::vector<DiskRead> started = disk_->started();
  ASSERT_EQ(started.size(), 6u);
  for (const size_t i : {0, 1, 2}) EXPECT_EQ(started[1 + i].offset, (6 + 2 * i) * kPage);
}

TEST_F(SplitReaderTest, EndsWithReadsInFlight) {
  disk_->Stop();
  auto reader = Open({.depth = 2});
  reader->Submit({{ReadOf(0, 16, 1)}}, DiskUrgency::kDemand);
  disk_->WaitForStarted(2);
  reader.reset();
}

}  // namespace
}  // namespace moewe
