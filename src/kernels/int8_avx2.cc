// The integer path on AVX2 (+ FMA, F16C, BMI2): `maddubs` with exact 16-bit sums.
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/int8.h"
#include "kernels/ladder.h"
#include "kernels/layout.h"
#include "kernels/prefetch.h"

#define MOEWE_TARGET "avx2,fma,f16c,bmi2"
#include "kernels/target_begin.h"

namespace moewe::kernels {
namespace {

inline __m256i Load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline __m128i Load128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }

// ---- scales ----

// t[c][r] for 8 rows, then each row's 32 rungs side by side: rungs[r * 32 + c]. The running product
// is a chain of 31 multiplications; 8 rows go through it together.
void Ladders(const uint8_t* const (&params)[8], float* rungs) {
  const float* exp2 = Exp2OfF16();
  alignas(32) float lo[8];
  alignas(32) float step[8];
  for (int r = 0; r < 8; ++r) {
    lo[r] = exp2[LoadU16(params[r])];
    step[r] = exp2[LoadU16(params[r] + 2)];
  }
  __m256 t = _mm256_load_ps(lo);
  const __m256 ratio = _mm256_load_ps(step);
  for (int block = 0; block < 4; ++block) {
    __m256 v[8];
    for (int i = 0; i < 8; ++i) {
      v[i] = t;
      t = _mm256_mul_ps(t, ratio);
    }
    // 8x8 transpose: v[i] = rung of 8 rows -> row r's 8 rungs.
    __m256 a[8];
    for (int i = 0; i < 4; ++i) {
      a[2 * i] = _mm256_unpacklo_ps(v[2 * i], v[2 * i + 1]);
      a[2 * i + 1] = _mm256_unpackhi_ps(v[2 * i], v[2 * i + 1]);
    }
    __m256 b[8];
    for (int i = 0; i < 2; ++i) {
      b[4 * i + 0] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0x44);
      b[4 * i + 1] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0xEE);
      b[4 * i + 2] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0x44);
      b[4 * i + 3] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0xEE);
    }
    for (int r = 0; r < 4; ++r) {
      _mm256_storeu_ps(rungs + r * 32 + block * 8, _mm256_permute2f128_ps(b[r], b[r + 4], 0x20));
      _mm256_storeu_ps(rungs + (r + 4) * 32 + block * 8,
                       _mm256_permute2f128_ps(b[r], b[r + 4], 0x31));
    }
  }
}

// Scales of groups [g, g + 8) of one row; groups past the end give anything.
struct BlockScales {
  const uint8_t* row[8];
  size_t groups;
  __m256 Eight(int r, size_t g) const {
    const uint8_t* p = row[r] + g * 2;
    if (g + 8 <= groups) return _mm256_cvtph_ps(Load128(p));
    alignas(16) uint8_t rest[16] = {};
    std::memcpy(rest, p, (groups - g) * 2);
    return _mm256_cvtph_ps(Load128(rest));
  }
};

struct TileScales {
  const uint8_t* row[8];
  size_t groups;
  static __m128i Four(const uint8_t* p) {
    __m128i v = _mm_cvtsi32_si128(LoadU16(p));
    v = _mm_insert_epi16(v, LoadU16(p + kTileBytes), 1);
    v = _mm_insert_epi16(v, LoadU16(p + 2 * kTileBytes), 2);
    return _mm_insert_epi16(v, LoadU16(p + 3 * kTileBytes), 3);
  }
  __m256 Eight(int r, size_t g) const {
    const uint8_t* p = row[r] + g * kTileBytes;
    if (g + 8 <= groups) {
      // Through registers: eight narrow stores would stall the wide load after them.
      return _mm256_cvtph_ps(_mm_unpacklo_epi64(Four(p), Four(p + 4 * kTileBytes)));
    }
    alignas(16) uint16_t halves[8] = {};
    for (size_t i = 0; i < groups - g; ++i) halves[i] = LoadU16(p + i * kTileBytes);
    return _mm256_cvtph_ps(Load128(halves));
  }
};

struct LadderScales {
  const uint8_t* row[8];  // codes
  size_t groups;
  const float* rungs;
  __m256 Eight(int r, size_t g) const {
    const uint8_t* p = row[r] + g / 8 * 5;
    uint64_t packed = 0;
    if (g + 8 <= groups) {
      uint32_t low;
      std::memcpy(&low, p, 4);
      packed = low | uint64_t{p[4]} << 32;
    } else {
      std::memcpy(&packed, p, ((groups - g) * 5 + 7) / 8);
    }
    const uint64_t codes = _pdep_u64(packed, 0x1F1F1F1F1F1F1F1FULL);
    const __m256i index = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(codes)));
    const float* t = rungs + r * 32;
    const __m256 p0 = _mm256_permutevar8x32_ps(_mm256_loadu_ps(t), index);
    const __m256 p1 = _mm256_permutevar8x32_ps(_mm256_loadu_ps(t + 8), index);
    const __m256 p2 = _mm256_permutevar8x32_ps(_mm256_loadu_ps(t + 16), index);
    const __m256 p3 = _mm256_permutevar8x32_ps(_mm256_loadu_ps(t + 24), index);
    const __m256 bit3 = _mm256_castsi256_ps(_mm256_slli_epi32(index, 28));
    const __m256 bit4 = _mm256_castsi256_ps(_mm256_slli_epi32(index, 27));
    return _mm256_blendv_ps(_mm256_blendv_ps(p0, p1, bit3), _mm256_blendv_ps(p2, p3, bit3), bit4);
  }
};

// Two panels of [padded groups][4 rows].
template <class Scales>
void Panels(const Scales& scales, size_t groups, size_t padded, size_t panel_floats,
            float* panels) {
  for (int half = 0; half < 2; ++half) {
    float* out = panels + static_cast<size_t>(half) * panel_floats;
    for (size_t g = 0; g < groups; g += 8) {
      const __m256 r0 = scales.Eight(half * 4 + 0, g);
      const __m256 r1 = scales.Eight(half * 4 + 1, g);
      const __m256 r2 = scales.Eight(half * 4 + 2, g);
      const __m256 r3 = scales.Eight(half * 4 + 3, g);
      const __m256 lo01 = _mm256_unpacklo_ps(r0, r1);
      const __m256 hi01 = _mm256_unpackhi_ps(r0, r1);
      const __m256 lo23 = _mm256_unpacklo_ps(r2, r3);
      const __m256 hi23 = _mm256_unpackhi_ps(r2, r3);
      const __m256 g04 = _mm256_shuffle_ps(lo01, lo23, 0x44);
      const __m256 g15 = _mm256_shuffle_ps(lo01, lo23, 0xEE);
      const __m256 g26 = _mm256_shuffle_ps(hi01, hi23, 0x44);
      const __m256 g37 = _mm256_shuffle_ps(hi01, hi23, 0xEE);
      float* p = out + g * 4;
      _mm256_storeu_ps(p, _mm256_permute2f128_ps(g04, g15, 0x20));
      _mm256_storeu_ps(p + 8, _mm256_permute2f128_ps(g26, g37, 0x20));
      _mm256_storeu_ps(p + 16, _mm256_permute2f128_ps(g04, g15, 0x31));
      _mm256_storeu_ps(p + 24, _mm256_permute2f128_ps(g26, g37, 0x31));
    }
    if (groups < padded) std::memset(out + groups * 4, 0, (padded - groups) * 16);
  }
}

// ---- tiles ----

// Four vectors of 8 int16 a 128-bit lane, each a group's partial sums of one row, to
// [row 0, 1, 2, 3] of exact int32 group sums in each lane. The sum of a group is at most
// 32 * 15 * 127 = 60960; its two halves, at most 30480, still fit int16.
inline __m256i JoinRows16(__m256i s0, __m256i s1, __m256i s2, __m256i s3) {
  const __m256i t01 =
      _mm256_add_epi16(_mm256_unpacklo_epi16(s0, s1), _mm256_unpackhi_epi16(s0, s1));
  const __m256i t23 =
      _mm256_add_epi16(_mm256_unpacklo_epi16(s2, s3), _mm256_unpackhi_epi16(s2, s3));
  const __m256i halves =
      _mm256_add_epi16(_mm256_unpacklo_epi32(t01, t23), _mm256_unpackhi_epi32(t01, t23));
  const __m256i pair_up = _mm256_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15, 0,
                                           1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);
  return _mm256_madd_epi16(_mm256_shuffle_epi8(halves, pair_up), _mm256_set1_epi16(1));
}

// The same for four int32 a lane.
inline __m256i JoinRows32(__m256i s0, __m256i s1, __m256i s2, __m256i s3) {
  const __m256i t01 =
      _mm256_add_epi32(_mm256_unpacklo_epi32(s0, s1), _mm256_unpackhi_epi32(s0, s1));
  const __m256i t23 =
      _mm256_add_epi32(_mm256_unpacklo_epi32(s2, s3), _mm256_unpackhi_epi32(s2, s3));
  return _mm256_add_epi32(_mm256_unpacklo_epi64(t01, t23), _mm256_unpackhi_epi64(t01, t23));
}

// acc[0] holds chains 0 | 1 and acc[1] chains 2 | 3, four rows a lane.
inline void StoreRows(const __m256 (&acc)[2], float* out) {
  const __m256 sum = _mm256_add_ps(acc[0], acc[1]);
  _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1)));
}

// Activation order of kNibbles: pairs of groups, [even elements of both][odd elements of both].
struct Tiles {
  template <size_t kStride>
  static __m256i LoadPair(const uint8_t* p, bool whole) {
    if (!whole) return _mm256_zextsi128_si256(Load128(p));
    if constexpr (kStride == kGroupNibbles) return Load(p);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(Load128(p)), Load128(p + kStride), 1);
  }

  template <size_t kStride, int T>
  static void Nibbles(const uint8_t* const (&w)[4], size_t groups, const float* panel,
                      const uint8_t* const* x, size_t padded, float (*out)[4]) {
    __m256 acc[T][2];
    for (int t = 0; t < T; ++t) acc[t][0] = acc[t][1] = _mm256_setzero_ps();
    const __m256i mask = _mm256_set1_epi8(15);
    const auto step = [&](size_t g, int chain, bool whole) __attribute__((always_inline)) {
      __m256i lo[4];
      __m256i hi[4];
      for (int r = 0; r < 4; ++r) {
        const __m256i v = LoadPair<kStride>(w[r] + g * kStride, whole);
        lo[r] = _mm256_and_si256(v, mask);
        hi[r] = _mm256_and_si256(_mm256_srli_epi16(v, 4), mask);
      }
      const __m256 scales = _mm256_loadu_ps(panel + g * 4);
      for (int t = 0; t < T; ++t) {
        const __m256i even = Load(x[t] + g * 32);
        const __m256i odd = Load(x[t] + g * 32 + 32);
        __m256i s[4];
        for (int r = 0; r < 4; ++r) {
          s[r] =
              _mm256_add_epi16(_mm256_maddubs_epi16(lo[r], even), _mm256_maddubs_epi16(hi[r], odd));
        }
        const __m256i sums =
            _mm256_sub_epi32(JoinRows16(s[0], s[1], s[2], s[3]), Load(x[t] + padded * 48 + g * 16));
        const __m256 dx =
            _mm256_loadu_ps(reinterpret_cast<const float*>(x[t] + padded * 32 + g * 16));
        acc[t][chain] =
            _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), _mm256_mul_ps(scales, dx), acc[t][chain]);
      }
    };
    size_t g = 0;
    for (; g + 4 <= groups; g += 4) {
      if constexpr (T == 1) {
        // The block of four rows is one stretch of memory; walk it linearly.
        const uint8_t* ahead = w[0] + g * 4 * kStride + PrefetchDistance<kStride>(groups);
        for (size_t line = 0; line < 4 * 4 * kStride; line += 64) {
          _mm_prefetch(reinterpret_cast<const char*>(ahead + line), _MM_HINT_T0);
        }
      }
      step(g, 0, true);
      step(g + 2, 1, true);
    }
    if (g < groups) step(g, 0, g + 2 <= groups);
    if (g + 2 < groups) step(g + 2, 1, false);
    for (int t = 0; t < T; ++t) StoreRows(acc[t], out[t]);
  }

  // 128 * 127 * 2 = 32512 fits int16, so |w| and x with w's sign are exact for all of int8
  // weights (activations are never -128).
  static __m256i Products(__m256i w, __m256i x) {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)),
                             _mm256_set1_epi16(1));
  }

  template <int T>
  static void Bytes(const uint8_t* const (&rows)[4], size_t cols, const uint8_t* const* x,
                    size_t padded, float (*out)[4]) {
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
      if constexpr (T == 1) {
        const uint8_t* ahead = rows[0] + g * 4 * 32 + kPrefetchBytes;
        for (size_t line = 0; line < 512; line += 64) {
          _mm_prefetch(reinterpret_cast<const char*>(ahead + line), _MM_HINT_T0);
        }
      }
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

// ---- activations ----

// One group: values to q, dx and sum; natural order.
inline __m256i QuantizeGroup(const float* x, const uint8_t* col_field, float* dx, int32_t* sum) {
  __m256 v[4];
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  __m256i max = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_loadu_ps(x + i * 8);
    if (col_field != nullptr) {
      v[i] = _mm256_mul_ps(v[i], _mm256_cvtph_ps(Load128(col_field + i * 16)));
    }
    max = _mm256_max_epi32(max, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude));
  }
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4E));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xB1));
  const int32_t bits = _mm_cvtsi128_si32(m);
  float amax;
  std::memcpy(&amax, &bits, 4);
  *sum = 0;
  *dx = 0;
  if (bits >= 0x7F800000) {
    *dx = std::numeric_limits<float>::quiet_NaN();
    return _mm256_setzero_si256();
  }
  if (amax < 1e-36f) return _mm256_setzero_si256();
  *dx = amax / 127.0f;
  const __m256 inverse = _mm256_set1_ps(127.0f / amax);
  __m256i q[4];
  for (int i = 0; i < 4; ++i) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
  const __m256i packed =
      _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
  const __m256i natural =
      _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  const __m256i s =
      _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), natural), _mm256_set1_epi16(1));
  __m128i h = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
  h = _mm_add_epi32(h, _mm_shuffle_epi32(h, 0x4E));
  h = _mm_add_epi32(h, _mm_shuffle_epi32(h, 0xB1));
  *sum = _mm_cvtsi128_si32(h);
  return natural;
}

void Quantize(const float* x, const uint8_t* col_field, size_t count, size_t group, size_t cols,
              Input input, uint8_t* row) {
  QuantizeAvx2(x, col_field, count, group, cols, input, 2, row);
}

}  // namespace

void ScalePanelsAvx2(const Matrix& w, uint32_t row, float* panels) {
  const size_t groups = w.cols / kGroup;
  const size_t padded = PreparedRow::PaddedGroups(w.cols);
  const size_t panel_floats = Int8PanelFloats(w.cols);
  size_t at[8];
  for (uint32_t r = 0; r < 8; ++r) at[r] = std::min(row + r, w.rows - 1);
  if (w.dtype == DType::kQ4Block) {
    const Q4BlockLayout layout(w);
    BlockScales scales{{}, groups};
    for (int r = 0; r < 8; ++r) scales.row[r] = layout.scales + at[r] * groups * 2;
    Panels(scales, groups, padded, panel_floats, panels);
  } else if (w.dtype == DType::kQ4Tiled) {
    TileScales scales{{}, groups};
    for (int r = 0; r < 8; ++r) scales.row[r] = w.bytes.data() + at[r] * groups * kTileBytes;
    Panels(scales, groups, padded, panel_floats, panels);
  } else {
    const Q4tpLayout layout(w);
    float* rungs = panels + 2 * panel_floats;
    LadderScales scales{{}, groups, rungs};
    const uint8_t* params[8];
    for (int r = 0; r < 8; ++r) {
      scales.row[r] = layout.codes + at[r] * layout.code_bytes;
      params[r] = layout.params + at[r] * 4;
    }
    Ladders(params, rungs);
    Panels(scales, groups, padded, panel_floats, panels);
  }
}

void QuantizeAvx2(const float* x, const uint8_t* col_field, size_t count, size_t group, size_t cols,
                  Input input, size_t groups_per_vector, uint8_t* row) {
  const size_t padded = PreparedRow::PaddedGroups(cols);
  const size_t end = group * kGroup + count >= cols ? padded : group + count / kGroup;
  const __m256i split = _mm256_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15, 0, 2,
                                         4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
  for (size_t g = group; g < end; ++g) {
    const size_t first = (g - group) * kGroup;
    float dx = 0;
    int32_t sum = 0;
    __m256i q = _mm256_setzero_si256();
    if (first + kGroup <= count) {
      q = QuantizeGroup(x + first, col_field == nullptr ? nullptr : col_field + first * 2, &dx,
                        &sum);
    } else if (first < count) {
      float values[kGroup] = {};
      uint8_t field[kGroup * 2] = {};
      std::memcpy(values, x + first, (count - first) * 4);
      if (col_field != nullptr) std::memcpy(field, col_field + first * 2, (count - first) * 2);
      q = QuantizeGroup(values, col_field == nullptr ? nullptr : field, &dx, &sum);
    }
    if (input == Input::kNibbles) {
      q = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(q, split), 0xD8);
      uint8_t* even =
          row + g / groups_per_vector * groups_per_vector * kGroup + g % groups_per_vector * 16;
      _mm_storeu_si128(reinterpret_cast<__m128i*>(even), _mm256_castsi256_si128(q));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(even + groups_per_vector * 16),
                       _mm256_extracti128_si256(q, 1));
      sum *= 8;
    } else {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + g * kGroup), q);
      sum *= 128;
    }
    _mm_storeu_ps(reinterpret_cast<float*>(row + padded * 32 + g * 16), _mm_set1_ps(dx));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(row + padded * 48 + g * 16), _mm_set1_epi32(sum));
  }
}

const Int8Kernels kInt8Avx2 = {Quantize, NibblesOf<Tiles>, BytesOf<Tiles>};

}  // namespace moewe::kernels

#include "kernels/target_end.h"
#endif  // __x86_64__
