// The integer path on AVX2 (+ FMA, F16C): `maddubs` with exact 16-bit sums.
#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

#include "kernels/int8.h"
#include "kernels/layout.h"
#include "kernels/prefetch.h"

#define MOEWE_TARGET "avx2,fma,f16c"
#include "kernels/target_begin.h"

namespace moewe::kernels {
namespace {

MOEWE_INLINE __m256i Load(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
MOEWE_INLINE __m128i Load128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}

// ---- tiles ----

// Four vectors of 8 int16 a 128-bit lane, each a group's partial sums of one row, to
// [row 0, 1, 2, 3] of exact int32 group sums, times `factor`, in each lane. The sum of a group is
// at most 32 * 15 * 127 = 60960; its two halves, at most 30480, still fit int16.
MOEWE_INLINE __m256i JoinRows16(__m256i s0, __m256i s1, __m256i s2, __m256i s3, __m256i factor) {
  // Neighbours stay together, for `madd` to add.
  const __m256i t01 =
      _mm256_add_epi16(_mm256_unpacklo_epi32(s0, s1), _mm256_unpackhi_epi32(s0, s1));
  const __m256i t23 =
      _mm256_add_epi16(_mm256_unpacklo_epi32(s2, s3), _mm256_unpackhi_epi32(s2, s3));
  const __m256i halves =
      _mm256_add_epi16(_mm256_unpacklo_epi64(t01, t23), _mm256_unpackhi_epi64(t01, t23));
  return _mm256_madd_epi16(halves, factor);
}

// Dwords 0 and 2 of both, and 1 and 3, in each lane.
MOEWE_INLINE __m256i EvenDwords(__m256i a, __m256i b) {
  return _mm256_castps_si256(
      _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0x88));
}
MOEWE_INLINE __m256i OddDwords(__m256i a, __m256i b) {
  return _mm256_castps_si256(
      _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0xDD));
}

// The same for four int32 a lane.
MOEWE_INLINE __m256i JoinRows32(__m256i s0, __m256i s1, __m256i s2, __m256i s3) {
  const __m256i t01 =
      _mm256_add_epi32(_mm256_unpacklo_epi32(s0, s1), _mm256_unpackhi_epi32(s0, s1));
  const __m256i t23 =
      _mm256_add_epi32(_mm256_unpacklo_epi32(s2, s3), _mm256_unpackhi_epi32(s2, s3));
  return _mm256_add_epi32(_mm256_unpacklo_epi64(t01, t23), _mm256_unpackhi_epi64(t01, t23));
}

// acc[0] holds chains 0 | 1 and acc[1] chains 2 | 3, four rows a lane.
MOEWE_INLINE void StoreRows(const __m256 (&acc)[2], float* out) {
  const __m256 sum = _mm256_add_ps(acc[0], acc[1]);
  _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1)));
}

// Activation order of kNibbles: pairs of groups, [even elements of both][odd elements of both].
struct Tiles {
  static constexpr size_t kTileCodes = 2;
  static constexpr bool kReadsThrough = false;
  template <size_t kStride>
  static constexpr bool kNeedsPanels = true;
  static void ScalePanels(const Matrix& w, uint32_t row, const uint8_t* ahead, float* panels) {
    ScalePanelsAvx2(w, row, ahead, panels);
  }

  template <size_t kStride>
  static MOEWE_INLINE __m256i LoadPair(const uint8_t* p, bool whole) {
    if (!whole) return _mm256_zextsi128_si256(Load128(p));
    if constexpr (kStride == kGroupNibbles) return Load(p);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(Load128(p)), Load128(p + kStride), 1);
  }

  template <size_t kStride, bool kOdd, int T>
  static void Nibbles(const uint8_t* const (&w)[4], size_t groups, const float* panel,
                      const uint8_t* const* x, size_t padded, const uint8_t* ahead,
                      float (*out)[4]) {
    __m256 acc[T][2];
    for (int t = 0; t < T; ++t) acc[t][0] = acc[t][1] = _mm256_setzero_ps();
    const __m256i mask = _mm256_set1_epi8(15);
    const __m256i factor = _mm256_set1_epi16(kOdd ? 2 : 1);
    const auto step = [&](size_t g, int chain, bool whole) __attribute__((always_inline)) {
      __m256i lo[4];
      __m256i hi[4];
      for (int r = 0; r < 4; ++r) {
        const __m256i v = LoadPair<kStride>(w[r] + g * kStride, whole);
        lo[r] = _mm256_and_si256(v, mask);
        hi[r] = _mm256_and_si256(_mm256_srli_epi16(v, 4), mask);
      }
      const __m256 scales =
          kOdd ? _mm256_broadcast_ps(reinterpret_cast<const __m128*>(panel + g * 2))
               : _mm256_loadu_ps(panel + g * 4);
      for (int t = 0; t < T; ++t) {
        const __m256i even = Load(x[t] + g * 32);
        const __m256i odd = Load(x[t] + g * 32 + 32);
        __m256i s[4];
        for (int r = 0; r < 4; ++r) {
          s[r] =
              _mm256_add_epi16(_mm256_maddubs_epi16(lo[r], even), _mm256_maddubs_epi16(hi[r], odd));
        }
        const __m256i sums = _mm256_sub_epi32(JoinRows16(s[0], s[1], s[2], s[3], factor),
                                              Load(x[t] + padded * 48 + g * 16));
        const __m256 dx =
            _mm256_loadu_ps(reinterpret_cast<const float*>(x[t] + padded * 32 + g * 16));
        acc[t][chain] =
            _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), _mm256_mul_ps(scales, dx), acc[t][chain]);
      }
    };
    size_t g = 0;
    for (; g + 4 <= groups; g += 4) {
      if constexpr (T == 1) PrefetchLines(ahead + g * 3 * kStride, 3);
      step(g, 0, true);
      step(g + 2, 1, true);
    }
    if (g < groups) step(g, 0, g + 2 <= groups);
    if (g + 2 < groups) step(g + 2, 1, false);
    for (int t = 0; t < T; ++t) StoreRows(acc[t], out[t]);
  }

  // A vector of weights is four groups, two in each lane. 16-bit sums are at most 32 * 3 * 127 =
  // 12192. Chains 0 and 2 are the lanes of acc[0], chains 1 and 3 those of acc[1].
  template <int T>
  static void Crumbs(const uint8_t* const (&w)[4], size_t groups, const float* panel,
                     const uint8_t* const* x, size_t padded, const uint8_t* ahead,
                     float (*out)[4]) {
    __m256 acc[T][2];
    for (int t = 0; t < T; ++t) acc[t][0] = acc[t][1] = _mm256_setzero_ps();
    const __m256i mask = _mm256_set1_epi8(3);
    const __m256i two = _mm256_set1_epi16(2);
    const auto step = [&](const uint8_t* const(&p)[4], size_t g) __attribute__((always_inline)) {
      __m256i s[T][4];
      for (int r = 0; r < 4; ++r) {
        const __m256i v = Load(p[r]);
        const __m256i c0 = _mm256_and_si256(v, mask);
        const __m256i c1 = _mm256_and_si256(_mm256_srli_epi16(v, 2), mask);
        const __m256i c2 = _mm256_and_si256(_mm256_srli_epi16(v, 4), mask);
        const __m256i c3 = _mm256_and_si256(_mm256_srli_epi16(v, 6), mask);
        for (int t = 0; t < T; ++t) {
          const uint8_t* q = x[t] + g * 32;
          s[t][r] = _mm256_add_epi16(_mm256_add_epi16(_mm256_maddubs_epi16(c0, Load(q)),
                                                      _mm256_maddubs_epi16(c1, Load(q + 32))),
                                     _mm256_add_epi16(_mm256_maddubs_epi16(c2, Load(q + 64)),
                                                      _mm256_maddubs_epi16(c3, Load(q + 96))));
          // Here and now: GCC would work on all rows at once and put their vectors into memory.
          asm volatile("" : "+x"(s[t][r]));
        }
      }
      const __m256 scales = _mm256_loadu_ps(panel + g * 2);
      for (int t = 0; t < T; ++t) {
        // Each lane: [a of row 0][b of row 0][a of row 1][b of row 1] for its groups a and b.
        const __m256i s01 = _mm256_madd_epi16(
            _mm256_add_epi16(EvenDwords(s[t][0], s[t][1]), OddDwords(s[t][0], s[t][1])), two);
        const __m256i s23 = _mm256_madd_epi16(
            _mm256_add_epi16(EvenDwords(s[t][2], s[t][3]), OddDwords(s[t][2], s[t][3])), two);
        const __m256i sums[2] = {EvenDwords(s01, s23), OddDwords(s01, s23)};
        for (size_t i = 0; i < 2; ++i) {
          const size_t at = (g + 2 * i) * 4;
          const __m256i sum = _mm256_sub_epi32(sums[i], Load(x[t] + padded * 48 + at * 4));
          const __m256 dx =
              _mm256_loadu_ps(reinterpret_cast<const float*>(x[t] + padded * 32 + at * 4));
          acc[t][i] =
              _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(scales, dx), acc[t][i]);
        }
      }
    };
    size_t g = 0;
    for (; g + 4 <= groups; g += 4) {
      if constexpr (T == 1) PrefetchLines(ahead + g * 3 * kGroupCrumbs, g % 8 == 0 ? 1 : 2);
      const size_t at = g * kGroupCrumbs;
      step({w[0] + at, w[1] + at, w[2] + at, w[3] + at}, g);
    }
    if (g < groups) {
      alignas(32) uint8_t tail[4][32] = {};
      for (int r = 0; r < 4; ++r) {
        std::memcpy(tail[r], w[r] + g * kGroupCrumbs, (groups - g) * kGroupCrumbs);
      }
      step({tail[0], tail[1], tail[2], tail[3]}, g);
    }
    for (int t = 0; t < T; ++t) {
      __m128 sum[2];  // c0 + c2, c1 + c3
      for (int i = 0; i < 2; ++i) {
        sum[i] = _mm_add_ps(_mm256_castps256_ps128(acc[t][i]), _mm256_extractf128_ps(acc[t][i], 1));
      }
      _mm_storeu_ps(out[t], _mm_add_ps(sum[0], sum[1]));
    }
  }

  // 128 * 127 * 2 = 32512 fits int16, so |w| and x with w's sign are exact for all of int8
  // weights (activations are never -128).
  static MOEWE_INLINE __m256i Products(__m256i w, __m256i x) {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)),
                             _mm256_set1_epi16(1));
  }

  template <int T>
  static void Bytes(const uint8_t* const (&rows)[4], size_t cols, const uint8_t* const* x,
                    size_t padded, const uint8_t* ahead, float (*out)[4]) {
    __m256 acc[T][2];
    for (int t = 0; t < T; ++t) acc[t][0] = acc[t][1] = _mm256_setzero_ps();
    const auto step = [&](const uint8_t* const* w, size_t offset, size_t g,
                          int chain) __attribute__((always_inline)) {
      for (int t = 0; t < T; ++t) {
        const __m256i x0 = Load(x[t] + g * 32);
        const __m256i x1 = Load(x[t] + g * 32 + 32);
        __m256i s[4];
        for (int r = 0; r < 4; ++r) {
          const __m256i p0 = Products(Load(w[r] + offset), x0);
          const __m256i p1 = Products(Load(w[r] + offset + 32), x1);
          s[r] = _mm256_add_epi32(_mm256_permute2x128_si256(p0, p1, 0x20),
                                  _mm256_permute2x128_si256(p0, p1, 0x31));
        }
        const __m256 dx =
            _mm256_loadu_ps(reinterpret_cast<const float*>(x[t] + padded * 32 + g * 16));
        acc[t][chain] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(JoinRows32(s[0], s[1], s[2], s[3])), dx,
                                        acc[t][chain]);
      }
    };
    size_t g = 0;
    for (; g * 32 + 128 <= cols; g += 4) {
      if constexpr (T == 1) PrefetchLines(ahead + g * 4 * 32, 8);
      step(rows, g * 32, g, 0);
      step(rows, g * 32 + 64, g + 2, 1);
    }
    if (g * 32 < cols) {
      alignas(32) uint8_t tail[4][128] = {};
      const uint8_t* tails[4];
      for (int r = 0; r < 4; ++r) {
        std::memcpy(tail[r], rows[r] + g * 32, cols - g * 32);
        tails[r] = tail[r];
      }
      step(tails, 0, g, 0);
      step(tails, 64, g + 2, 1);
    }
    for (int t = 0; t < T; ++t) StoreRows(acc[t], out[t]);
  }
};

#include "kernels/int8_driver-inl.h"

void Quantize(const float* x, const uint8_t* col_field, size_t count, size_t group, size_t cols,
              Input input, uint8_t* row) {
  QuantizeAvx2(x, col_field, count, group, cols, input, 2, row);
}

// Tokens from which on a batch is worth its panels.
constexpr size_t kBatch = 6;

void Packed(const Matrix& w, uint32_t row_begin, uint32_t row_end, const uint8_t* const* x,
            size_t n, float* const* y, float* scratch, const NextRows& next) {
  if (n >= kBatch) return BatchPackedAvx2(w, row_begin, row_end, x, n, y, scratch);
  PackedOf<Tiles>(w, row_begin, row_end, x, n, y, scratch, next);
}

}  // namespace

const Int8Kernels kInt8Avx2 = {Quantize, Packed, BytesOf<Tiles>, PlainAvx2};

}  // namespace moewe::kernels

#include "kernels/target_end.h"
#endif  // __x86_64__
