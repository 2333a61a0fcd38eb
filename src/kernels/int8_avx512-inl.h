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

struct Tiles512 {
  // Two pairs' scales of four rows, in lanes as `kOrder` has them: 0x50 = 0, 0, 1, 1; 0x44 = 0, 1,
  // 0, 1.
  template <int kOrder>
  static MOEWE_INLINE __m512 PairScales(const float* p) {
    const __m512i two = _mm512_castps_si512(_mm512_castps256_ps512(_mm256_loadu_ps(p)));
    return _mm512_castsi512_ps(_mm512_shuffle_i32x4(two, two, kOrder));
  }

  // Nibbles of four groups from p; only the first `live` exist.
  template <size_t kStride>
  static MOEWE_INLINE __m512i LoadQuad(const uint8_t* p, size_t live) {
    if (live >= 4) {
      if constexpr (kStride == kGroupNibbles) return Load512(p);
      const auto at = [p](size_t i) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + i * kStride));
      };
      __m512i v = _mm512_castsi128_si512(at(0));
      v = _mm512_inserti32x4(v, at(1), 1);
      v = _mm512_inserti32x4(v, at(2), 2);
      return _mm512_inserti32x4(v, at(3), 3);
    }
    alignas(64) uint8_t rest[64] = {};
    for (size_t i = 0; i < live; ++i) std::memcpy(rest + i * 16, p + i * kStride, 16);
    return Load512(rest);
  }

  template <size_t kStride, bool kOdd, int T>
  static void Nibbles(const uint8_t* const (&w)[4], size_t groups, const float* panel,
                      const uint8_t* const* x, size_t padded, const uint8_t* ahead,
                      float (*out)[4]) {
    __m512 acc[T];
    for (int t = 0; t < T; ++t) acc[t] = _mm512_setzero_ps();
    const __m512i mask = _mm512_set1_epi8(15);
    for (size_t g = 0; g < groups; g += 4) {
      if constexpr (T == 1) PrefetchLines(ahead + g * 3 * kStride, 3);
      __m512i lo[4];
      __m512i hi[4];
      for (int r = 0; r < 4; ++r) {
        const __m512i v = LoadQuad<kStride>(w[r] + g * kStride, groups - g);
        lo[r] = _mm512_and_si512(v, mask);
        hi[r] = _mm512_and_si512(_mm512_srli_epi16(v, 4), mask);
      }
      __m512 scales;
      if constexpr (kOdd) {
        scales = PairScales<0x50>(panel + g * 2);
      } else {
        scales = _mm512_loadu_ps(panel + g * 4);
      }
      for (int t = 0; t < T; ++t) {
        const __m512i even = Load512(x[t] + g * 32);
        const __m512i odd = Load512(x[t] + g * 32 + 64);
        __m512i s[4];
        for (int r = 0; r < 4; ++r) {
          s[r] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), lo[r], even),
                                     hi[r], odd);
        }
        __m512i joined = JoinRows512(s[0], s[1], s[2], s[3]);
        if constexpr (kOdd) joined = _mm512_add_epi32(joined, joined);
        const __m512i sums = _mm512_sub_epi32(joined, Load512(x[t] + padded * 48 + g * 16));
        const __m512 dx =
            _mm512_loadu_ps(reinterpret_cast<const float*>(x[t] + padded * 32 + g * 16));
        acc[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), _mm512_mul_ps(scales, dx), acc[t]);
      }
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
  // groups together. Lanes of acc hold chains 0, 2, 1, 3.
  template <int T>
  static void Crumbs(const uint8_t* const (&w)[4], size_t groups, const float* panel,
                     const uint8_t* const* x, size_t padded, const uint8_t* ahead,
                     float (*out)[4]) {
    __m512 acc[T];
    for (int t = 0; t < T; ++t) acc[t] = _mm512_setzero_ps();
    const __m512i mask = _mm512_set1_epi8(3);
    alignas(64) uint8_t tail[4][64];
    for (size_t g = 0; g < groups; g += 8) {
      if constexpr (T == 1) PrefetchLines(ahead + g * 3 * kGroupCrumbs, 3);
      __m512i c[4][4];  // [row][element mod 4]
      for (int r = 0; r < 4; ++r) {
        const uint8_t* p = w[r] + g * kGroupCrumbs;
        if (groups - g < 8) {
          std::memset(tail[r], 0, sizeof(tail[r]));
          std::memcpy(tail[r], p, (groups - g) * kGroupCrumbs);
          p = tail[r];
        }
        const __m512i v = Load512(p);
        c[r][0] = _mm512_and_si512(v, mask);
        c[r][1] = _mm512_and_si512(_mm512_srli_epi16(v, 2), mask);
        c[r][2] = _mm512_and_si512(_mm512_srli_epi16(v, 4), mask);
        c[r][3] = _mm512_and_si512(_mm512_srli_epi16(v, 6), mask);
      }
      const bool whole = groups - g > 4;
      for (int t = 0; t < T; ++t) {
        // Codes past the row's end are zeros: any activations will do beside them.
        const uint8_t* low = x[t] + g * 32;
        const uint8_t* high = whole ? low + 128 : low;
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
        const auto add = [&](__m512i sums, size_t at) {
          const __m512i sum =
              _mm512_sub_epi32(_mm512_add_epi32(sums, sums), Load512(x[t] + padded * 48 + at * 16));
          const __m512 dx =
              _mm512_loadu_ps(reinterpret_cast<const float*>(x[t] + padded * 32 + at * 16));
          acc[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum),
                                   _mm512_mul_ps(PairScales<0x44>(panel + at * 2), dx), acc[t]);
        };
        add(_mm512_shuffle_i32x4(a, b, 0x44), g);
        if (whole) add(_mm512_shuffle_i32x4(a, b, 0xEE), g + 4);
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

  template <int T>
  static void Bytes(const uint8_t* const (&rows)[4], size_t cols, const uint8_t* const* x,
                    size_t padded, const uint8_t* ahead, float (*out)[4]) {
    __m512 acc[T];
    for (int t = 0; t < T; ++t) acc[t] = _mm512_setzero_ps();
    alignas(64) uint8_t tail[4][128];
    for (size_t g = 0; g * 32 < cols; g += 4) {
      const uint8_t* w[4];
      for (int r = 0; r < 4; ++r) {
        w[r] = rows[r] + g * 32;
        if (cols - g * 32 < 128) {
          std::memset(tail[r], 0, sizeof(tail[r]));
          std::memcpy(tail[r], w[r], cols - g * 32);
          w[r] = tail[r];
        }
      }
      if constexpr (T == 1) PrefetchLines(ahead + g * 4 * 32, 8);
      for (int t = 0; t < T; ++t) {
        __m512i s[4];
        for (int r = 0; r < 4; ++r) s[r] = Products(w[r], x[t] + g * 32);
        const __m512i sums = _mm512_sub_epi32(JoinRows512(s[0], s[1], s[2], s[3]),
                                              Load512(x[t] + padded * 48 + g * 16));
        const __m512 dx =
            _mm512_loadu_ps(reinterpret_cast<const float*>(x[t] + padded * 32 + g * 16));
        acc[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), dx, acc[t]);
      }
    }
    for (int t = 0; t < T; ++t) StoreRows512(acc[t], out[t]);
  }
};

#include "kernels/int8_driver-inl.h"

void Quantize512(const float* x, const uint8_t* col_field, size_t count, size_t group, size_t cols,
                 Input input, uint8_t* row) {
  QuantizeAvx2(x, col_field, count, group, cols, input, 4, row);
}
