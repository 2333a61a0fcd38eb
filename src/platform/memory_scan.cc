#include "platform/memory_scan.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "platform/cpu_features.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace moewe {
namespace {

constexpr size_t kTurnBytes = 128;  // two cache lines

// Independent sums, so that loads need not wait for additions.
uint64_t SumPlain(const uint8_t* p, size_t turns) {
  uint64_t a = 0, b = 0, c = 0, d = 0;
  const auto load = [](const uint8_t* at) {
    uint64_t word = 0;
    std::memcpy(&word, at, sizeof(word));
    return word;
  };
  for (const uint8_t* end = p + turns * kTurnBytes; p != end; p += 32) {
    a += load(p);
    b += load(p + 8);
    c += load(p + 16);
    d += load(p + 24);
  }
  return a + b + c + d;
}

#if defined(__x86_64__)
// Words of 8 bytes do not reach the bandwidth of the last-level cache, nor always that of memory.
[[gnu::target("avx2")]] uint64_t SumAvx2(const uint8_t* p, size_t turns) {
  __m256i a = _mm256_setzero_si256();
  __m256i b = a, c = a, d = a;
  const auto* at = reinterpret_cast<const __m256i_u*>(p);
  for (const __m256i_u* end = at + 4 * turns; at != end; at += 4) {
    a = _mm256_add_epi64(a, _mm256_loadu_si256(at));
    b = _mm256_add_epi64(b, _mm256_loadu_si256(at + 1));
    c = _mm256_add_epi64(c, _mm256_loadu_si256(at + 2));
    d = _mm256_add_epi64(d, _mm256_loadu_si256(at + 3));
  }
  alignas(32) std::array<uint64_t, 4> sums;
  _mm256_store_si256(reinterpret_cast<__m256i*>(sums.data()),
                     _mm256_add_epi64(_mm256_add_epi64(a, b), _mm256_add_epi64(c, d)));
  return sums[0] + sums[1] + sums[2] + sums[3];
}
#endif

uint64_t Sum(Bytes bytes) {
  const size_t turns = bytes.size() / kTurnBytes;
#if defined(__x86_64__)
  uint64_t total =
      GetCpuFeatures().avx2 ? SumAvx2(bytes.data(), turns) : SumPlain(bytes.data(), turns);
#else
  uint64_t total = SumPlain(bytes.data(), turns);
#endif
  for (size_t i = turns * kTurnBytes; i < bytes.size(); ++i) total += bytes[i];
  return total;
}

}  // namespace

void AddScanPieces(Bytes bytes, std::vector<Bytes>* pieces) {
  for (size_t begin = 0; begin < bytes.size(); begin += kScanPiece) {
    pieces->push_back(bytes.subspan(begin, std::min(kScanPiece, bytes.size() - begin)));
  }
}

uint64_t ScanMemory(std::span<const Bytes> pieces, ThreadPool& pool) {
  std::atomic<uint64_t> total{0};
  pool.Run(pieces.size(),
           [&](size_t i, int) { total.fetch_add(Sum(pieces[i]), std::memory_order_relaxed); });
  return total;
}

}  // namespace moewe
