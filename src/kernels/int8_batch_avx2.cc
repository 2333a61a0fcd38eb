// Many activation rows times a 4-bit matrix on AVX2.
//
// Row by row, a group's sums have to be gathered across a register for every token: 11 instructions
// beside 12 that multiply. Here eight rows are laid out once for all tokens so that a 32-bit lane
// is a row, and nothing is gathered:
//
//   [group][8 steps][row 0: 4 bytes] ... [row 7: 4 bytes]     weights as unsigned bytes, 0..15
//
// A step multiplies four weights of each row with four activations, the same for all rows; step i
// takes even elements 8 i, 8 i + 2, .. 8 i + 6 for i < 4 (a group's low nibbles), odd ones for the
// other four. The 16-bit sums of a group, at most 16 * 15 * 127 = 30480, are exact. A chain of the
// rule is one pass over every fourth group, so that a tile needs one accumulator a token.
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
constexpr int kTileTokens = 4;

MOEWE_INLINE __m256i Load(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

MOEWE_INLINE __m256i Broadcast(const uint8_t* p) {
  return _mm256_set1_epi32(static_cast<int>(LoadU32(p)));
}

// rows[r]: the first nibbles of a row, `stride` bytes from group to group.
void PackRows(const uint8_t* const (&rows)[8], size_t stride, size_t groups, uint8_t* panel) {
  const __m256i mask = _mm256_set1_epi8(15);
  for (size_t g = 0; g < groups; ++g, panel += kPanelGroupBytes) {
    __m256i v[4];  // rows r and r + 4
    for (size_t r = 0; r < 4; ++r) {
      const auto* low = reinterpret_cast<const __m128i*>(rows[r] + g * stride);
      const auto* high = reinterpret_cast<const __m128i*>(rows[r + 4] + g * stride);
      v[r] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(low)),
                                     _mm_loadu_si128(high), 1);
    }
    const __m256i lo01 = _mm256_unpacklo_epi32(v[0], v[1]);
    const __m256i hi01 = _mm256_unpackhi_epi32(v[0], v[1]);
    const __m256i lo23 = _mm256_unpacklo_epi32(v[2], v[3]);
    const __m256i hi23 = _mm256_unpackhi_epi32(v[2], v[3]);
    const __m256i dwords[4] = {_mm256_unpacklo_epi64(lo01, lo23), _mm256_unpackhi_epi64(lo01, lo23),
                               _mm256_unpacklo_epi64(hi01, hi23),
                               _mm256_unpackhi_epi64(hi01, hi23)};
    for (size_t i = 0; i < 4; ++i) {
      auto* out = reinterpret_cast<__m256i*>(panel + i * kStepBytes);
      _mm256_storeu_si256(out, _mm256_and_si256(dwords[i], mask));
      _mm256_storeu_si256(out + 4, _mm256_and_si256(_mm256_srli_epi16(dwords[i], 4), mask));
    }
  }
}

// Eight rows times T activation rows: out[t][row], 32-byte aligned.
template <int T>
void Tile(const uint8_t* panel, const float* scales, size_t panel_floats, size_t groups,
          const uint8_t* const* x, size_t padded, float (*out)[8]) {
  const __m256i ones = _mm256_set1_epi16(1);
  alignas(32) float chains[4][T][8];
  for (size_t j = 0; j < 4; ++j) {
    __m256 chain[T];
    for (int t = 0; t < T; ++t) chain[t] = _mm256_setzero_ps();
    for (size_t g = j; g < groups; g += 4) {
      const uint8_t* w = panel + g * kPanelGroupBytes;
      // Even elements of two groups, then odd ones: the order of AVX2's kNibbles.
      const size_t at = g / 2 * 64 + g % 2 * 16;
      __m256i s[T];
      for (size_t i = 0; i < kSteps; ++i) {
        const __m256i weights = Load(w + i * kStepBytes);
        for (int t = 0; t < T; ++t) {
          const __m256i q = Broadcast(x[t] + at + i / 4 * 32 + i % 4 * 4);
          const __m256i products = _mm256_maddubs_epi16(weights, q);
          s[t] = i == 0 ? products : _mm256_add_epi16(s[t], products);
          // Here and now: GCC would put all products first, into memory, and the sums after them.
          asm volatile("" : "+x"(s[t]));
        }
      }
      const __m256 scale =
          _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(scales + g * 4)),
                               _mm_loadu_ps(scales + panel_floats + g * 4), 1);
      for (int t = 0; t < T; ++t) {
        const __m256i sum =
            _mm256_sub_epi32(_mm256_madd_epi16(s[t], ones), Broadcast(x[t] + padded * 48 + g * 16));
        const __m256 dx = _mm256_castsi256_ps(Broadcast(x[t] + padded * 32 + g * 16));
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

template <int T>
void StoreTile(const uint8_t* panel, const float* scales, size_t panel_floats, size_t groups,
               const uint8_t* const* x, size_t padded, size_t live, float* const* y, size_t row) {
  alignas(32) float out[T][8];
  Tile<T>(panel, scales, panel_floats, groups, x, padded, out);
  for (int t = 0; t < T; ++t) std::memcpy(y[t] + row, out[t], live * sizeof(float));
}

}  // namespace

void BatchNibblesAvx2(const Matrix& w, uint32_t row_begin, uint32_t row_end,
                      const uint8_t* const* x, size_t n, float* const* y, float* scratch) {
  const size_t groups = w.cols / kGroup;
  const size_t padded = PreparedRow::PaddedGroups(w.cols);
  const size_t panel_floats = Int8PanelFloats(w.cols);
  const bool tiled = w.dtype == DType::kQ4Tiled;
  const size_t stride = tiled ? kTileBytes : kGroupNibbles;
  auto* panel = reinterpret_cast<uint8_t*>(scratch + Int8ScalesFloats(w.cols));
  for (uint32_t block = row_begin; block < row_end; block += 8) {
    const size_t live = std::min<size_t>(8, row_end - block);
    const uint8_t* rows[8];
    for (uint32_t r = 0; r < 8; ++r) {
      const size_t at = std::min(block + r, w.rows - 1);
      rows[r] = w.bytes.data() + at * groups * stride + (tiled ? 2 : 0);
    }
    ScalePanelsAvx2(w, block, nullptr, scratch);
    PackRows(rows, stride, groups, panel);
    const size_t row = block - row_begin;
    size_t t = 0;
    for (; t + kTileTokens <= n; t += kTileTokens) {
      StoreTile<kTileTokens>(panel, scratch, panel_floats, groups, x + t, padded, live, y + t, row);
    }
    if (n - t == 3) {
      StoreTile<3>(panel, scratch, panel_floats, groups, x + t, padded, live, y + t, row);
    } else if (n - t == 2) {
      StoreTile<2>(panel, scratch, panel_floats, groups, x + t, padded, live, y + t, row);
    } else if (n - t == 1) {
      StoreTile<1>(panel, scratch, panel_floats, groups, x + t, padded, live, y + t, row);
    }
  }
}

}  // namespace moewe::kernels

#include "kernels/target_end.h"
#endif  // __x86_64__
