// The integer path on AVX-512 VNNI: `dpbusd` on unsigned weights, the offset taken off as a
// precomputed integer a group (SumFactor times the sum of the activations). Included by
// int8_avx512.cc and, over SIMDe's emulation of the same intrinsics, by its test. Activation order
// of kNibbles and kOddNibbles: four groups, [even elements of all][odd elements of all].

MOEWE_INLINE __m512i Load512(const void* p) { return _mm512_loadu_si512(p); }

// Four int32 a 128-bit lane (a group) and row to [row 0, 1, 2, 3] a lane.
MOEWE_INLINE __m512i JoinRows512(__m512i s0, __m512i s1, __m512i s2, __m512i s3) {
  const __m512i t01 =
      _mm512_add_epi32(_mm512_unpacklo_epi32(s0, s1), _mm512_unpackhi_epi32(s0, s1));
  const __m512i t23 =
      _mm512_add_epi32(_mm512_unpacklo_epi32(s2, s3), _mm512_unpackhi_epi32(s2, s3));
  return _mm512_add_epi32(_mm512_unpacklo_epi64(t01, t23), _mm512_unpackhi_epi64(t01, t23));
}

// Lane j holds chain j of four rows: (c0 + c2) + (c1 + c3).
MOEWE_INLINE void StoreRows512(__m512 acc, float* out) {
  alignas(64) float c[16];
  _mm512_storeu_ps(c, acc);
  for (int r = 0; r < 4; ++r) out[r] = (c[r] + c[8 + r]) + (c[4 + r] + c[12 + r]);
}

#include "kernels/int8_scales_avx512-inl.h"

struct Tiles512 {
  static constexpr size_t kTileCodes = 0;
  static constexpr bool kReadsThrough = true;
  static void ScalePanels(const Matrix& w, uint32_t row, const uint8_t* ahead, float* panels) {
    ScalePanels512(w, row, ahead, panels);
  }

  // Two pairs' scales of four rows, in lanes as `kOrder` has them: 0x50 = 0, 0, 1, 1; 0x44 = 0, 1,
  // 0, 1.
  template <int kOrder>
  static MOEWE_INLINE __m512 PairScales(const float* p) {
    const __m512i two = _mm512_castps_si512(_mm512_castps256_ps512(_mm256_loadu_ps(p)));
    return _mm512_castsi512_ps(_mm512_shuffle_i32x4(two, two, kOrder));
  }

  // Tiles have their scales beside their codes.
  template <size_t kStride>
  static constexpr bool kNeedsPanels = kStride != kTileBytes;

  // The codes of four tiles, whose first 64 bytes v is; the fourth one's are behind them.
  static MOEWE_INLINE __m512i TileCodes(__m512i v, const uint8_t* p) {
    alignas(64) static constexpr auto kPlaces = [] {
      struct Table {
        uint8_t place[64];
      } table{};
      for (size_t i = 0; i < 48; ++i) {
        table.place[i] = static_cast<uint8_t>(2 + i / 16 * kTileBytes + i % 16);
      }
      return table;
    }();
    return _mm512_mask_broadcast_i32x4(
        _mm512_permutexvar_epi8(Load512(kPlaces.place), v), 0xF000,
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 3 * kTileBytes + 2)));
  }

  // Four groups of four rows from w[r] on, the first one's index being g.
  template <size_t kStride, bool kOdd, int T>
  static MOEWE_INLINE void NibbleStep(const uint8_t* const (&w)[4], size_t g, const float* panel,
                                      const uint8_t* const* x, size_t padded, __m512 (&acc)[T]) {
    const __m512i mask = _mm512_set1_epi8(15);
    __m512 scales;
    __m512i v[4];
    for (int r = 0; r < 4; ++r) v[r] = Load512(w[r]);
    if constexpr (!kNeedsPanels<kStride>) {
      scales = TileScales512(v);
      for (int r = 0; r < 4; ++r) v[r] = TileCodes(v[r], w[r]);
    } else if constexpr (kOdd) {
      scales = PairScales<0x50>(panel + g * 2);
    } else {
      scales = _mm512_loadu_ps(panel + g * 4);
    }
    __m512i lo[4];
    __m512i hi[4];
    for (int r = 0; r < 4; ++r) {
      lo[r] = _mm512_and_si512(v[r], mask);
      hi[r] = _mm512_and_si512(_mm512_srli_epi16(v[r], 4), mask);
    }
    for (int t = 0; t < T; ++t) {
      const __m512i even = Load512(x[t] + g * 32);
      const __m512i odd = Load512(x[t] + g * 32 + 64);
      __m512i s[4];
      for (int r = 0; r < 4; ++r) {
        s[r] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), lo[r], even), hi[r],
                                   odd);
      }
      __m512i joined = JoinRows512(s[0], s[1], s[2], s[3]);
      if constexpr (kOdd) joined = _mm512_add_epi32(joined, joined);
      const __m512i sums = _mm512_sub_epi32(joined, Load512(x[t] + padded * 48 + g * 16));
      const __m512 dx =
          _mm512_loadu_ps(reinterpret_cast<const float*>(x[t] + padded * 32 + g * 16));
      acc[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), _mm512_mul_ps(scales, dx), acc[t]);
    }
  }

  template <size_t kStride, bool kOdd, int T>
  static void Nibbles(const uint8_t* const (&w)[4], size_t groups, const float* panel,
                      const uint8_t* const* x, size_t padded, const uint8_t* ahead,
                      float (*out)[4]) {
    __m512 acc[T];
    for (int t = 0; t < T; ++t) acc[t] = _mm512_setzero_ps();
    size_t g = 0;
    for (; g + 4 <= groups; g += 4) {
      if constexpr (T == 1 && kNeedsPanels<kStride>) {
        PrefetchLines(ahead + g * 3 * kStride, 3);
      } else if constexpr (T == 1) {
        PrefetchLines(ahead + g * 4 * kStride / kCacheLine * kCacheLine, g % 8 == 0 ? 4 : 5);
      }
      const size_t at = g * kStride;
      NibbleStep<kStride, kOdd, T>({w[0] + at, w[1] + at, w[2] + at, w[3] + at}, g, panel, x,
                                   padded, acc);
    }
    if (g < groups) {  // in a step of its own: as a branch of the loop it sent all through memory
      alignas(64) uint8_t rest[4][4 * kStride + 2] = {};
      for (int r = 0; r < 4; ++r) std::memcpy(rest[r], w[r] + g * kStride, (groups - g) * kStride);
      NibbleStep<kStride, kOdd, T>({rest[0], rest[1], rest[2], rest[3]}, g, panel, x, padded, acc);
    }
    for (int t = 0; t < T; ++t) StoreRows512(acc[t], out[t]);
  }

  // 32 bytes from each.
  static MOEWE_INLINE __m512i Two256(const uint8_t* low, const uint8_t* high) {
    return _mm512_inserti64x4(
        _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(low))),
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(high)), 1);
  }

  // A vector of weights is eight groups, two in each 128-bit lane; their activations lie four
  // groups together. Lanes of acc hold chains 0, 2, 1, 3. kWhole: all eight exist, not only up to
  // four; codes past the row's end are zeros.
  template <int T, bool kWhole>
  static MOEWE_INLINE void CrumbStep(const uint8_t* const (&w)[4], size_t g, const float* panel,
                                     const uint8_t* const* x, size_t padded, __m512 (&acc)[T]) {
    const __m512i mask = _mm512_set1_epi8(3);
    __m512i c[4][4];  // [row][element mod 4]
    for (int r = 0; r < 4; ++r) {
      const __m512i v = Load512(w[r]);
      c[r][0] = _mm512_and_si512(v, mask);
      c[r][1] = _mm512_and_si512(_mm512_srli_epi16(v, 2), mask);
      c[r][2] = _mm512_and_si512(_mm512_srli_epi16(v, 4), mask);
      c[r][3] = _mm512_and_si512(_mm512_srli_epi16(v, 6), mask);
    }
    for (int t = 0; t < T; ++t) {
      // Beside codes that are zeros any activations will do.
      const uint8_t* low = x[t] + g * 32;
      const uint8_t* high = kWhole ? low + 128 : low;
      __m512i s[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                      _mm512_setzero_si512()};
      for (int k = 0; k < 4; ++k) {
        const __m512i q = Two256(low + k * 32, high + k * 32);
        for (int r = 0; r < 4; ++r) s[r] = _mm512_dpbusd_epi32(s[r], c[r][k], q);
      }
      // The first groups of all lanes, then the second ones, four rows each.
      const __m512i a01 = _mm512_unpacklo_epi32(s[0], s[1]);
      const __m512i b01 = _mm512_unpackhi_epi32(s[0], s[1]);
      const __m512i a23 = _mm512_unpacklo_epi32(s[2], s[3]);
      const __m512i b23 = _mm512_unpackhi_epi32(s[2], s[3]);
      const __m512i a =
          _mm512_add_epi32(_mm512_unpacklo_epi64(a01, a23), _mm512_unpackhi_epi64(a01, a23));
      const __m512i b =
          _mm512_add_epi32(_mm512_unpacklo_epi64(b01, b23), _mm512_unpackhi_epi64(b01, b23));
      const auto add = [&](__m512i sums, size_t at) __attribute__((always_inline)) {
        const __m512i sum =
            _mm512_sub_epi32(_mm512_add_epi32(sums, sums), Load512(x[t] + padded * 48 + at * 16));
        const __m512 dx =
            _mm512_loadu_ps(reinterpret_cast<const float*>(x[t] + padded * 32 + at * 16));
        acc[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum),
                                 _mm512_mul_ps(PairScales<0x44>(panel + at * 2), dx), acc[t]);
      };
      add(_mm512_shuffle_i32x4(a, b, 0x44), g);
      if constexpr (kWhole) add(_mm512_shuffle_i32x4(a, b, 0xEE), g + 4);
    }
  }

  template <int T>
  static void Crumbs(const uint8_t* const (&w)[4], size_t groups, const float* panel,
                     const uint8_t* const* x, size_t padded, const uint8_t* ahead,
                     float (*out)[4]) {
    __m512 acc[T];
    for (int t = 0; t < T; ++t) acc[t] = _mm512_setzero_ps();
    size_t g = 0;
    for (; g + 8 <= groups; g += 8) {
      if constexpr (T == 1) PrefetchLines(ahead + g * 3 * kGroupCrumbs, 3);
      const size_t at = g * kGroupCrumbs;
      CrumbStep<T, true>({w[0] + at, w[1] + at, w[2] + at, w[3] + at}, g, panel, x, padded, acc);
    }
    if (g < groups) {
      alignas(64) uint8_t rest[4][64] = {};
      for (int r = 0; r < 4; ++r) {
        std::memcpy(rest[r], w[r] + g * kGroupCrumbs, (groups - g) * kGroupCrumbs);
      }
      const uint8_t* const rests[4] = {rest[0], rest[1], rest[2], rest[3]};
      if (groups - g > 4) {
        CrumbStep<T, true>(rests, g, panel, x, padded, acc);
      } else {
        CrumbStep<T, false>(rests, g, panel, x, padded, acc);
      }
    }
    for (int t = 0; t < T; ++t) {
      alignas(64) float sums[16];
      _mm512_storeu_ps(sums, acc[t]);
      for (int r = 0; r < 4; ++r) {
        out[t][r] = (sums[r] + sums[4 + r]) + (sums[8 + r] + sums[12 + r]);
      }
    }
  }

  // Four groups of 8-bit weights of one row times one token: two vectors of two groups each, folded
  // to four int32 a 128-bit lane (a group). Shuffling 64-bit halves keeps the groups in ascending
  // lanes.
  static MOEWE_INLINE __m512i Products(const uint8_t* w, const uint8_t* x) {
    const __m512i flip = _mm512_set1_epi8(-128);
    const __m512i p0 =
        _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_xor_si512(Load512(w), flip), Load512(x));
    const __m512i p1 = _mm512_dpbusd_epi32(
        _mm512_setzero_si512(), _mm512_xor_si512(Load512(w + 64), flip), Load512(x + 64));
    return _mm512_add_epi32(_mm512_shuffle_i32x4(p0, p1, 0x88), _mm512_shuffle_i32x4(p0, p1, 0xDD));
  }

  static MOEWE_INLINE void AddBytes(const __m512i (&s)[4], const uint8_t* x, size_t padded,
                                    size_t g, __m512* acc) {
    const __m512i sums =
        _mm512_sub_epi32(JoinRows512(s[0], s[1], s[2], s[3]), Load512(x + padded * 48 + g * 16));
    const __m512 dx = _mm512_loadu_ps(reinterpret_cast<const float*>(x + padded * 32 + g * 16));
    *acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), dx, *acc);
  }

  template <int T>
  static MOEWE_INLINE void ByteStep(const uint8_t* const (&w)[4], size_t g, const uint8_t* const* x,
                                    size_t padded, __m512 (&acc)[T]) {
    for (int t = 0; t < T; ++t) {
      __m512i s[4];
      for (int r = 0; r < 4; ++r) s[r] = Products(w[r], x[t] + g * 32);
      AddBytes(s, x[t], padded, g, &acc[t]);
    }
  }

  template <int T>
  static void Bytes(const uint8_t* const (&rows)[4], size_t cols, const uint8_t* const* x,
                    size_t padded, const uint8_t* ahead, float (*out)[4]) {
    __m512 acc[T];
    for (int t = 0; t < T; ++t) acc[t] = _mm512_setzero_ps();
    const size_t whole = cols / 128 * 128;
    for (size_t at = 0; at < whole; at += 128) {
      if constexpr (T == 1) PrefetchLines(ahead + at * 4, 8);
      ByteStep<T>({rows[0] + at, rows[1] + at, rows[2] + at, rows[3] + at}, at / 32, x, padded,
                  acc);
    }
    if (whole < cols) {
      alignas(64) uint8_t rest[4][128] = {};
      for (int r = 0; r < 4; ++r) std::memcpy(rest[r], rows[r] + whole, cols - whole);
      ByteStep<T>({rest[0], rest[1], rest[2], rest[3]}, whole / 32, x, padded, acc);
    }
    for (int t = 0; t < T; ++t) StoreRows512(acc[t], out[t]);
  }
};

#include "kernels/int8_driver-inl.h"

void Quantize512(const float* x, const uint8_t* col_field, size_t count, size_t group, size_t cols,
                 Input input, uint8_t* row) {
  QuantizeAvx2(x, col_field, count, group, cols, input, 4, row);
}
