#include "platform/memory_scan.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

namespace moewe {
namespace {

// Several microseconds each: enough to hide the hand-out, few enough to end together.
constexpr size_t kPieceBytes = 128 * 1024;

uint64_t Sum(Bytes bytes) {
  constexpr size_t kLanes = 16;  // independent sums of 8 bytes: two cache lines a turn
  std::array<uint64_t, kLanes> sums{};
  const uint8_t* p = bytes.data();
  size_t left = bytes.size();
  for (; left >= sizeof(sums); left -= sizeof(sums), p += sizeof(sums)) {
    std::array<uint64_t, kLanes> words;
    std::memcpy(words.data(), p, sizeof(words));
    for (size_t i = 0; i < kLanes; ++i) sums[i] += words[i];
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  for (; left > 0; --left, ++p) total += *p;
  return total;
}

}  // namespace

void AddScanPieces(Bytes bytes, std::vector<Bytes>* pieces) {
  for (size_t begin = 0; begin < bytes.size(); begin += kPieceBytes) {
    pieces->push_back(bytes.subspan(begin, std::min(kPieceBytes, bytes.size() - begin)));
  }
}

uint64_t ScanMemory(std::span<const Bytes> pieces, ThreadPool& pool) {
  std::atomic<uint64_t> total{0};
  pool.Run(pieces.size(),
           [&](size_t i, int) { total.fetch_add(Sum(pieces[i]), std::memory_order_relaxed); });
  return total;
}

}  // namespace moewe
