#include "platform/disk_transfer.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace moewe {
namespace {

constexpr uint64_t kBlock = kDiskAlignment;
constexpr uint64_t kOffset = 10 * kBlock;

class DiskTransferTest : public testing::Test {
 protected:
  // What it asks for next, as offset behind the read's and bytes; memory goes along.
  using Asked = std::pair<uint64_t, uint64_t>;
  Asked Next() const {
    EXPECT_FALSE(transfer_.done());
    EXPECT_EQ(transfer_.into() - memory_, static_cast<int64_t>(transfer_.offset() - kOffset));
    return {transfer_.offset() - kOffset, transfer_.bytes()};
  }
  void Begin(uint64_t bytes, uint64_t needed, uint64_t piece = 100 * kBlock) {
    transfer_ = DiskTransfer({0, kOffset, bytes, memory_, needed, 7}, piece);
  }
  void ExpectEnd(int error, uint64_t bytes) const {
    EXPECT_TRUE(transfer_.done());
    EXPECT_EQ(transfer_.result().tag, 7u);
    EXPECT_EQ(transfer_.result().error, error);
    EXPECT_EQ(transfer_.result().bytes, bytes);
  }

  uint8_t memory_[16 * kBlock];
  DiskTransfer transfer_;
};

TEST_F(DiskTransferTest, AllAtOnce) {
  Begin(4 * kBlock, 4 * kBlock);
  EXPECT_EQ(Next(), Asked(0, 4 * kBlock));
  transfer_.Take(4 * kBlock);
  ExpectEnd(0, 4 * kBlock);
}

TEST_F(DiskTransferTest, InterruptionsAreRepeated) {
  Begin(4 * kBlock, 4 * kBlock);
  for (const int error : {EINTR, EAGAIN, ECANCELED}) {
    transfer_.Take(-error);
    EXPECT_EQ(Next(), Asked(0, 4 * kBlock));
  }
  transfer_.Take(4 * kBlock);
  ExpectEnd(0, 4 * kBlock);
}

TEST_F(DiskTransferTest, InterruptionsWithoutEndAreAnError) {
  Begin(kBlock, kBlock);
  for (int i = 0; i < 100000 && !transfer_.done(); ++i) transfer_.Take(-EAGAIN);
  ExpectEnd(EAGAIN, 0);
}

TEST_F(DiskTransferTest, ShortInTheMiddleGoesOn) {
  Begin(4 * kBlock, 4 * kBlock);
  transfer_.Take(kBlock);
  EXPECT_EQ(Next(), Asked(kBlock, 3 * kBlock));
  transfer_.Take(kBlock + 100);
  EXPECT_EQ(Next(), Asked(2 * kBlock, 2 * kBlock));  // from a page's start
  transfer_.Take(2 * kBlock);
  ExpectEnd(0, 4 * kBlock);
}

TEST_F(DiskTransferTest, ShortAtTheEndIsEnough) {
  Begin(4 * kBlock, 3 * kBlock + 5);
  transfer_.Take(3 * kBlock + 5);
  ExpectEnd(0, 3 * kBlock + 5);
}

TEST_F(DiskTransferTest, TheFileHasEnded) {
  Begin(4 * kBlock, 4 * kBlock);
  transfer_.Take(kBlock + 5);
  EXPECT_EQ(Next(), Asked(kBlock, 3 * kBlock));
  transfer_.Take(5);
  ExpectEnd(0, kBlock + 5);
  Begin(4 * kBlock, 1);
  transfer_.Take(0);
  ExpectEnd(0, 0);
}

TEST_F(DiskTransferTest, Pieces) {
  Begin(5 * kBlock, 5 * kBlock, 2 * kBlock);
  EXPECT_EQ(Next(), Asked(0, 2 * kBlock));
  transfer_.Take(2 * kBlock);
  EXPECT_EQ(Next(), Asked(2 * kBlock, 2 * kBlock));
  transfer_.Take(2 * kBlock);
  EXPECT_EQ(Next(), Asked(4 * kBlock, kBlock));
  transfer_.Take(kBlock);
  ExpectEnd(0, 5 * kBlock);
  // What is needed is there, but the file goes on: everything is read.
  Begin(5 * kBlock, 10, 2 * kBlock);
  transfer_.Take(2 * kBlock);
  EXPECT_EQ(Next(), Asked(2 * kBlock, 2 * kBlock));
}

TEST_F(DiskTransferTest, ErrorsEndIt) {
  Begin(4 * kBlock, 4 * kBlock);
  transfer_.Take(kBlock);
  transfer_.Take(-EIO);
  ExpectEnd(EIO, kBlock);
  EXPECT_FALSE(transfer_.result().ok(kBlock));
}

TEST_F(DiskTransferTest, Nothing) {
  Begin(0, 0);
  ExpectEnd(0, 0);
}

}  // namespace
}  // namespace moewe
