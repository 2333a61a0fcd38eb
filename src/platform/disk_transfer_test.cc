#include "platform/disk_transfer.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace moewe {
namespace {

constexpr uint64_t kPage = kDiskAlignment;
constexpr uint64_t kOffset = 10 * kPage;

class DiskTransferTest : public testing::Test {
 protected:
  // What it asks for next, as offset behind the read's and bytes; memory goes along.
  using Asked = std::pair<uint64_t, uint64_t>;
  Asked Next() const {
    EXPECT_FALSE(transfer_.done());
    EXPECT_EQ(transfer_.into() - memory_, static_cast<int64_t>(transfer_.offset() - kOffset));
    return {transfer_.offset() - kOffset, transfer_.bytes()};
  }
  void Begin(uint64_t bytes, uint64_t needed, uint64_t piece = 100 * kPage) {
    transfer_ = DiskTransfer({0, kOffset, bytes, memory_, needed, 7}, piece);
  }
  void ExpectEnd(int error, uint64_t bytes) const {
    EXPECT_TRUE(transfer_.done());
    EXPECT_EQ(transfer_.result().tag, 7u);
    EXPECT_EQ(transfer_.result().error, error);
    EXPECT_EQ(transfer_.result().bytes, bytes);
  }

  uint8_t memory_[16 * kPage];
  DiskTransfer transfer_;
};

TEST_F(DiskTransferTest, AllAtOnce) {
  Begin(4 * kPage, 4 * kPage);
  EXPECT_EQ(Next(), Asked(0, 4 * kPage));
  transfer_.Take(4 * kPage);
  ExpectEnd(0, 4 * kPage);
}

TEST_F(DiskTransferTest, InterruptionsAreRepeated) {
  Begin(4 * kPage, 4 * kPage);
  for (const int error : {EINTR, EAGAIN, ECANCELED}) {
    transfer_.Take(-error);
    EXPECT_EQ(Next(), Asked(0, 4 * kPage));
  }
  transfer_.Take(4 * kPage);
  ExpectEnd(0, 4 * kPage);
}

TEST_F(DiskTransferTest, InterruptionsWithoutEndAreAnError) {
  Begin(kPage, kPage);
  for (int i = 0; i < 100000 && !transfer_.done(); ++i) transfer_.Take(-EAGAIN);
  ExpectEnd(EAGAIN, 0);
}

TEST_F(DiskTransferTest, ShortInTheMiddleGoesOn) {
  Begin(4 * kPage, 4 * kPage);
  transfer_.Take(kPage);
  EXPECT_EQ(Next(), Asked(kPage, 3 * kPage));
  transfer_.Take(kPage + 100);
  EXPECT_EQ(Next(), Asked(2 * kPage, 2 * kPage));  // from a page's start
  transfer_.Take(2 * kPage);
  ExpectEnd(0, 4 * kPage);
}

TEST_F(DiskTransferTest, ShortAtTheEndIsEnough) {
  Begin(4 * kPage, 3 * kPage + 5);
  transfer_.Take(3 * kPage + 5);
  ExpectEnd(0, 3 * kPage + 5);
}

TEST_F(DiskTransferTest, TheFileHasEnded) {
  Begin(4 * kPage, 4 * kPage);
  transfer_.Take(kPage + 5);
  EXPECT_EQ(Next(), Asked(kPage, 3 * kPage));
  transfer_.Take(5);
  ExpectEnd(0, kPage + 5);
  Begin(4 * kPage, 1);
  transfer_.Take(0);
  ExpectEnd(0, 0);
}

TEST_F(DiskTransferTest, Pieces) {
  Begin(5 * kPage, 5 * kPage, 2 * kPage);
  EXPECT_EQ(Next(), Asked(0, 2 * kPage));
  transfer_.Take(2 * kPage);
  EXPECT_EQ(Next(), Asked(2 * kPage, 2 * kPage));
  transfer_.Take(2 * kPage);
  EXPECT_EQ(Next(), Asked(4 * kPage, kPage));
  transfer_.Take(kPage);
  ExpectEnd(0, 5 * kPage);
  // What is needed is there, but the file goes on: everything is read.
  Begin(5 * kPage, 10, 2 * kPage);
  transfer_.Take(2 * kPage);
  EXPECT_EQ(Next(), Asked(2 * kPage, 2 * kPage));
}

TEST_F(DiskTransferTest, ErrorsEndIt) {
  Begin(4 * kPage, 4 * kPage);
  transfer_.Take(kPage);
  transfer_.Take(-EIO);
  ExpectEnd(EIO, kPage);
  EXPECT_FALSE(transfer_.result().ok(kPage));
}

TEST_F(DiskTransferTest, Nothing) {
  Begin(0, 0);
  ExpectEnd(0, 0);
}

}  // namespace
}  // namespace moewe
