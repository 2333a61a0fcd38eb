#include "dot_peak.h"

#include <atomic>
#include <cstdint>

#include "platform/cpu_features.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif

namespace moewe {
namespace {

constexpr size_t kRounds = 300'000;
// Sums that do not wait for each other: more than the instructions in flight.
constexpr size_t kChains = 16;

// An empty statement that may have changed `value`: the compiler neither drops nor joins products.
#define MOEWE_KEEP(constraint, value) asm volatile("" : "+" constraint(value))

#if defined(__x86_64__)
[[gnu::target("avx512f,avx512vnni")]] size_t DotsVnni() {
  __m512i sums[kChains] = {};
  __m512i codes = _mm512_set1_epi8(3);
  __m512i activations = _mm512_set1_epi8(-5);
  MOEWE_KEEP("v", codes);
  MOEWE_KEEP("v", activations);
  for (size_t round = 0; round < kRounds; ++round) {
#pragma GCC unroll 16
    for (__m512i& sum : sums) {
      sum = _mm512_dpbusd_epi32(sum, codes, activations);
      MOEWE_KEEP("v", sum);
    }
  }
  return kRounds * kChains * 64;
}

// As the AVX2 kernels multiply: products, sums of two and of four, added up. Fewer chains, since
// there are 16 registers.
[[gnu::target("avx2")]] size_t DotsAvx2() {
  constexpr size_t kFewChains = 8;
  __m256i sums[kFewChains] = {};
  __m256i codes = _mm256_set1_epi8(3);
  __m256i activations = _mm256_set1_epi8(-5);
  __m256i ones = _mm256_set1_epi16(1);
  MOEWE_KEEP("x", codes);
  MOEWE_KEEP("x", activations);
  MOEWE_KEEP("x", ones);
  for (size_t round = 0; round < kRounds; ++round) {
#pragma GCC unroll 8
    for (__m256i& sum : sums) {
      __m256i pairs = _mm256_maddubs_epi16(codes, activations);
      MOEWE_KEEP("x", pairs);
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
      MOEWE_KEEP("x", sum);
    }
  }
  return kRounds * kFewChains * 32;
}
#elif defined(__ARM_FEATURE_DOTPROD)
size_t DotsNeon() {
  int32x4_t sums[kChains] = {};
  int8x16_t codes = vdupq_n_s8(3);
  int8x16_t activations = vdupq_n_s8(-5);
  MOEWE_KEEP("w", codes);
  MOEWE_KEEP("w", activations);
  for (size_t round = 0; round < kRounds; ++round) {
#pragma GCC unroll 16
    for (int32x4_t& sum : sums) {
      sum = vdotq_s32(sum, codes, activations);
      MOEWE_KEEP("w", sum);
    }
  }
  return kRounds * kChains * 16;
}
#endif
#undef MOEWE_KEEP

struct Dots {
  const char* instruction = nullptr;
  size_t (*run)() = nullptr;
};

Dots Best() {
#if defined(__x86_64__)
  if (GetCpuFeatures().avx512_vnni) return {"vpdpbusd, 512 bits", DotsVnni};
  if (GetCpuFeatures().avx2) return {"vpmaddubsw, vpmaddwd, vpaddd, 256 bits", DotsAvx2};
#elif defined(__ARM_FEATURE_DOTPROD)
  return {"sdot, 128 bits", DotsNeon};
#endif
  return {};
}

}  // namespace

const char* DotInstruction() { return Best().instruction; }

size_t RunDots(ThreadPool& pool) {
  const Dots dots = Best();
  if (dots.run == nullptr) return 0;
  std::atomic<size_t> total{0};
  pool.Run(static_cast<size_t>(pool.num_threads()),
           [&](size_t, int) { total.fetch_add(dots.run(), std::memory_order_relaxed); });
  return total;
}

}  // namespace moewe
