// Many activation rows times a matrix of 4-bit or 2-bit codes on AVX2.
//
// Row by row, a group's sums have to be gathered across a register for every token: 11 instructions
// beside 12 that multiply. Here eight rows are laid out once for all tokens so that a 32-bit lane
// is a row, and nothing is gathered:
//
//   [group][8 steps][row 0: 4 bytes] ... [row 7: 4 bytes]     codes as unsigned bytes
//
// A step multiplies four weights of each row with four activations, the same for all rows. Nibbles:
// step i takes even elements 8 i, 8 i + 2, .. 8 i + 6 for i < 4 (a group's low nibbles), odd ones
// for the other four. Crumbs: step i takes elements 16 (i % 2) + i / 2, and 4, 8 and 12 on. The
// 16-bit sums of a group, at most 16 * 15 * 127 = 30480, are exact. A chain of the rule is one pass
// over every fourth group, so that a tile needs one accumulator a token.
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "kernels/int8.h"
#include "kernels/layout.h"

#define MOEWE_TARGET "avx2,fma,f16c"
#include "kernels/target_begin.h"

namespace moewe::kernels {
namespace {

constexpr size_t kSteps = 8;
constexpr size_t kStepBytes = 32;
constexpr size_t kPanelGroupBytes = kSteps * kStepBytes;
// Their sums and chains take 12 of 16 registers.
constexpr int kTileTokens = 6;

MOEWE_INLINE __m256i Load(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

MOEWE_INLINE __m256i Broadcast(const uint8_t* p) {
  return _mm256_set1_epi32(static_cast<int>(LoadU32(p)));
}

// Dwords 0..3 of the rows in v, rows r and r + 4 in the lanes of v[r], to one of all eight rows
// each.
MOEWE_INLINE void TransposeDwords(const __m256i (&v)[4], __m256i (&dwords)[4]) {
  const __m256i lo01 = _mm256_unpacklo_epi32(v[0], v[1]);
  const __m256i hi01 = _mm256_unpackhi_epi32(v[0], v[1]);
  const __m256i lo23 = _mm256_unpacklo_epi32(v[2], v[3]);
  const __m256i hi23 = _mm256_unpackhi_epi32(v[2], v[3]);
  dwords[0] = _mm256_unpacklo_epi64(lo01, lo23);
  dwords[1] = _mm256_unpackhi_epi64(lo01, lo23);
  dwords[2] = _mm256_unpacklo_epi64(hi01, hi23);
  dwords[3] = _mm256_unpackhi_epi64(hi01, hi23);
}

// rows[r]: the first nibbles of a row, `stride` bytes from group to group.
void PackNibbles(const uint8_t* const (&rows)[8], size_t stride, size_t groups, uint8_t* panel) {
  const __m256i mask = _mm256_set1_epi8(15);
  for (size_t g = 0; g < groups; ++g, panel += kPanelGroupBytes) {
    __m256i v[4];  // rows r and r + 4
    for (size_t r = 0; r < 4; ++r) {
      const auto* low = reinterpret_cast<const __m128i*>(rows[r] + g * stride);
      const auto* high = reinterpret_cast<const __m128i*>(rows[r + 4] + g * stride);
      v[r] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(low)),
                                     _mm_loadu_si128(high), 1);
    }
    __m256i dwords[4];
    TransposeDwords(v, dwords);
    for (size_t i = 0; i < 4; ++i) {
      auto* out = reinterpret_cast<__m256i*>(panel + i * kStepBytes);
      _mm256_storeu_si256(out, _mm256_and_si256(dwords[i], mask));
      _mm256_storeu_si256(out + 4, _mm256_and_si256(_mm256_srli_epi16(dwords[i], 4), mask));
    }
  }
}

// The same for 2-bit codes, two groups at a time.
void PackCrumbs(const uint8_t* const (&rows)[8], size_t groups, uint8_t* panel) {
  const __m256i mask = _mm256_set1_epi8(3);
  for (size_t g = 0; g < groups; g += 2, panel += 2 * kPanelGroupBytes) {
    __m256i v[4];  // rows r and r + 4
    for (size_t r = 0; r < 4; ++r) {
      const auto* low = reinterpret_cast<const __m128i*>(rows[r] + g * kGroupCrumbs);
      const auto* high = reinterpret_cast<const __m128i*>(rows[r + 4] + g * kGroupCrumbs);
      v[r] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(low)),
                                     _mm_loadu_si128(high), 1);
    }
    __m256i dwords[4];
    TransposeDwords(v, dwords);
    for (size_t i = 0; i < 4; ++i) {
      auto* out = reinterpret_cast<__m256i*>(panel + i / 2 * kPanelGroupBytes + i % 2 * kStepBytes);
      _mm256_storeu_si256(out, _mm256_and_si256(dwords[i], mask));
      _mm256_storeu_si256(out + 2, _mm256_and_si256(_mm256_srli_epi16(dwords[i], 2), mask));
      _mm256_storeu_si256(out + 4, _mm256_and_si256(_mm256_srli_epi16(dwords[i], 4), mask));
      _mm256_storeu_si256(out + 6, _mm256_and_si256(_mm256_srli_epi16(dwords[i], 6), mask));
    }
  }
}

// Where the activations of step i of group g lie: the orders of AVX2's forms.
template <Input kInput>
MOEWE_INLINE size_t StepAt(size_t g, size_t i) {
  if constexpr (kInput == Input::kOddCrumbs) {
    return g / 4 * 128 + g % 4 * 8 + i / 2 * 32 + i % 2 * 4;
  }
  return g / 2 * 64 + g % 2 * 16 + i / 4 * 32 + i % 4 * 4;
}

// Eight rows times T activation rows: out[t][row], 32-byte aligned.
template <Input kInput, int T>
void Tile(const uint8_t* panel, const float* scales, size_t panel_floats, size_t groups,
          const uint8_t* const* x, size_t padded, float (*out)[8]) {
  const __m256i factor = _mm256_set1_epi16(kInput == Input::kNibbles ? 1 : 2);
  alignas(32) float chains[4][T][8];
  for (size_t j = 0; j < 4; ++j) {
    __m256 chain[T];
    for (int t = 0; t < T; ++t) chain[t] = _mm256_setzero_ps();
    for (size_t g = j; g < groups; g += 4) {
      const uint8_t* w = panel + g * kPanelGroupBytes;
      const size_t place = kInput == Input::kOddCrumbs ? CrumbPlace(g) : g;
      __m256i s[T];
      // Unrolled, or every step computes its places anew, which takes as long as the products.
#pragma GCC unroll 8
      for (size_t i = 0; i < kSteps; ++i) {
        const __m256i weights = Load(w + i * kStepBytes);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
          const __m256i q = Broadcast(x[t] + StepAt<kInput>(g, i));
          const __m256i products = _mm256_maddubs_epi16(weights, q);
          s[t] = i == 0 ? products : _mm256_add_epi16(s[t], products);
          // Here and now: GCC would put all products first, into memory, and the sums after them.
          asm volatile("" : "+x"(s[t]));
        }
      }
      // A scale a group or a pair of groups.
      const float* scale_at = scales + (kInput == Input::kNibbles ? g : g / 2) * 4;
      const __m256 scale = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(scale_at)),
                                                _mm_loadu_ps(scale_at + panel_floats), 1);
      for (int t = 0; t < T; ++t) {
        const __m256i sum = _mm256_sub_epi32(_mm256_madd_epi16(s[t], factor),
                                             Broadcast(x[t] + padded * 48 + place * 16));
        const __m256 dx = _mm256_castsi256_ps(Broadcast(x[t] + padded * 32 + place * 16));
        chain[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(scale, dx), chain[t]);
      }
    }
    for (int t = 0; t < T; ++t) _mm256_store_ps(chains[j][t], chain[t]);
  }
  for (int t = 0; t < T; ++t) {
    const __m256 even = _mm256_add_ps(_mm256_load_ps(chains[0][t]), _mm256_load_ps(chains[2][t]));
    const __m256 odd = _mm256_add_ps(_mm256_load_ps(chains[1][t]), _mm256_load_ps(chains[3][t]));
    _mm256_store_ps(out[t], _mm256_add_ps(even, odd));
  }
}

template <Input kInput, int T>
void StoreTile(const uint8_t* panel, const float* scales, size_t panel_floats, size_t groups,
               const uint8_t* const* x, size_t padded, size_t live, float* const* y, size_t row) {
  alignas(32) float out[T][8];
  Tile<kInput, T>(panel, scales, panel_floats, groups, x, padded, out);
  for (int t = 0; t < T; ++t) std::memcpy(y[t] + row, out[t], live * sizeof(float));
}

template <Input kInput>
void Batch(const Matrix& w, uint32_t row_begin, uint32_t row_end, const uint8_t* const* x, size_t n,
           float* const* y, float* scratch) {
  const size_t groups = w.cols / kGroup;
  const size_t padded = PreparedRow::PaddedGroups(w.cols);
  const size_t panel_floats = Int8PanelFloats(w.cols);
  const bool tiled = w.dtype == DType::kQ4Tiled;
  const size_t stride = tiled                         ? kTileBytes
                        : kInput == Input::kOddCrumbs ? kGroupCrumbs
                                                      : kGroupNibbles;
  auto* panel = reinterpret_cast<uint8_t*>(scratch + Int8ScalesFloats(w.cols));
  for (uint32_t block = row_begin; block < row_end; block += 8) {
    const size_t live = std::min<size_t>(8, row_end - block);
    const uint8_t* rows[8];
    for (uint32_t r = 0; r < 8; ++r) {
      const size_t at = std::min(block + r, w.rows - 1);
      rows[r] = w.bytes.data() + at * groups * stride + (tiled ? 2 : 0);
    }
    ScalePanelsAvx2(w, block, nullptr, scratch);
    if constexpr (kInput == Input::kOddCrumbs) {
      PackCrumbs(rows, groups, panel);
    } else {
      PackNibbles(rows, stride, groups, panel);
    }
    const size_t row = block - row_begin;
    const auto tile = [&]<int T>(size_t t) {
      StoreTile<kInput, T>(panel, scratch, panel_floats, groups, x + t, padded, live, y + t, row);
    };
    size_t t = 0;
    for (; t + kTileTokens <= n; t += kTileTokens) tile.template operator()<kTileTokens>(t);
    if (n - t == 5) tile.template operator()<5>(t);
    if (n - t == 4) tile.template operator()<4>(t);
    if (n - t == 3) tile.template operator()<3>(t);
    if (n - t == 2) tile.template operator()<2>(t);
    if (n - t == 1) tile.template operator()<1>(t);
  }
}

}  // namespace

void BatchPackedAvx2(const Matrix& w, uint32_t row_begin, uint32_t row_end, const uint8_t* const* x,
                     size_t n, float* const* y, float* scratch) {
  switch (w.dtype) {
    case DType::kSmoeQ4:
      return Batch<Input::kOddNibbles>(w, row_begin, row_end, x, n, y, scratch);
    case DType::kSmoeQ2:
      return Batch<Input::kOddCrumbs>(w, row_begin, row_end, x, n, y, scratch);
    default:
      return Batch<Input::kNibbles>(w, row_begin, row_end, x, n, y, scratch);
  }
}

}  // namespace moewe::kernels

#include "kernels/target_end.h"
#endif  // __x86_64__
