#include "platform/memory_scan.h"

#include <gtest/gtest.h>

#include <numeric>

namespace moewe {
namespace {

TEST(MemoryScan, ReadsEveryByteOnce) {
  ThreadPool pool(2);
  std::vector<uint8_t> bytes(300'001);
  std::iota(bytes.begin(), bytes.end(), uint8_t{1});
  const auto scan = [&] {
    std::vector<Bytes> pieces;
    AddScanPieces(bytes, &pieces);
    AddScanPieces(Bytes(bytes).first(0), &pieces);
    EXPECT_EQ(std::accumulate(pieces.begin(), pieces.end(), size_t{0},
                              [](size_t sum, Bytes piece) { return sum + piece.size(); }),
              bytes.size());
    return ScanMemory(pieces, pool);
  };
  const uint64_t before = scan();
  for (const size_t changed : {size_t{0}, size_t{131'072}, size_t{262'143}, bytes.size() - 1}) {
    ++bytes[changed];
    EXPECT_NE(scan(), before) << changed;
    --bytes[changed];
  }
  EXPECT_EQ(scan(), before);
}

}  // namespace
}  // namespace moewe
