// The scales of eight rows of a matrix of packed codes as f32, on AVX2.
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "kernels/int8.h"
#include "kernels/ladder.h"
#include "kernels/layout.h"

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

// 16 bytes from p, of which only those before `end` exist; in registers where all do.
MOEWE_INLINE __m128i LoadBefore(const uint8_t* p, const uint8_t* end) {
  if (end - p >= 16) return Load128(p);
  alignas(16) uint8_t rest[16] = {};
  if (p < end) std::memcpy(rest, p, static_cast<size_t>(end - p));
  return Load128(rest);
}

// ---- stored as f16 ----

// Scales of groups [g, g + 8) of one row; groups past the end give anything.
struct BlockScales {
  const uint8_t* row[8];
  size_t groups;
  MOEWE_INLINE __m256 Eight(int r, size_t g) const {
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
  static MOEWE_INLINE __m128i Four(const uint8_t* p) {
    __m128i v = _mm_cvtsi32_si128(LoadU16(p));
    v = _mm_insert_epi16(v, LoadU16(p + kTileBytes), 1);
    v = _mm_insert_epi16(v, LoadU16(p + 2 * kTileBytes), 2);
    return _mm_insert_epi16(v, LoadU16(p + 3 * kTileBytes), 3);
  }
  MOEWE_INLINE __m256 Eight(int r, size_t g) const {
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

// Rows of four values in each lane to [value 0 of rows 0..3], [value 1 of rows 0..3], ...
MOEWE_INLINE void Transpose4(__m256 r0, __m256 r1, __m256 r2, __m256 r3, __m256 (&out)[4]) {
  const __m256 lo01 = _mm256_unpacklo_ps(r0, r1);
  const __m256 hi01 = _mm256_unpackhi_ps(r0, r1);
  const __m256 lo23 = _mm256_unpacklo_ps(r2, r3);
  const __m256 hi23 = _mm256_unpackhi_ps(r2, r3);
  out[0] = _mm256_shuffle_ps(lo01, lo23, 0x44);
  out[1] = _mm256_shuffle_ps(lo01, lo23, 0xEE);
  out[2] = _mm256_shuffle_ps(hi01, hi23, 0x44);
  out[3] = _mm256_shuffle_ps(hi01, hi23, 0xEE);
}

// Two panels of [groups][4 rows].
template <class Scales>
void Panels(const Scales& scales, size_t groups, const uint8_t* ahead, size_t panel_floats,
            float* panels) {
  for (int half = 0; half < 2; ++half) {
    float* out = panels + static_cast<size_t>(half) * panel_floats;
    for (size_t g = 0; g < groups; g += 8) {
      if (ahead != nullptr) {  // 2 of the 16 lines that 8 groups of 8 rows have
        PrefetchLines(ahead, 2);
        ahead += 2 * kCacheLine;
      }
      __m256 m[4];  // groups i and i + 4
      Transpose4(scales.Eight(half * 4 + 0, g), scales.Eight(half * 4 + 1, g),
                 scales.Eight(half * 4 + 2, g), scales.Eight(half * 4 + 3, g), m);
      float* p = out + g * 4;
      _mm256_storeu_ps(p, _mm256_permute2f128_ps(m[0], m[1], 0x20));
      _mm256_storeu_ps(p + 8, _mm256_permute2f128_ps(m[2], m[3], 0x20));
      _mm256_storeu_ps(p + 16, _mm256_permute2f128_ps(m[0], m[1], 0x31));
      _mm256_storeu_ps(p + 24, _mm256_permute2f128_ps(m[2], m[3], 0x31));
    }
  }
}

// ---- .smoe vaults: an f16 scale for a pair of groups ----

// Two panels of [pairs][4 rows], zeros up to an even number of pairs. kLines: an eighth of the
// cache lines that 8 pairs of 8 rows have.
template <size_t kLines>
void PairPanels(const Matrix& w, const size_t (&at)[8], float factor, const uint8_t* ahead,
                size_t panel_floats, float* panels) {
  const SmoeLayout layout(w);
  const size_t pairs = layout.pairs_per_row;
  const uint8_t* end = w.bytes.data() + w.bytes.size();
  const uint8_t* rows[8];
  for (size_t r = 0; r < 8; ++r) rows[r] = layout.Scales(at[r]);
  const __m256 unit = _mm256_set1_ps(factor);
  const auto store = [&](__m128i halves, float* out) __attribute__((always_inline)) {
    _mm256_storeu_ps(out, _mm256_mul_ps(_mm256_cvtph_ps(halves), unit));
  };
  for (size_t p = 0; p < pairs; p += 8) {
    if (ahead != nullptr) {
      PrefetchLines(ahead, 2 * kLines);
      ahead += 2 * kLines * kCacheLine;
    }
    __m256i v[4];  // rows r and r + 4, eight pairs each
    for (size_t r = 0; r < 4; ++r) {
      v[r] = _mm256_inserti128_si256(_mm256_castsi128_si256(LoadBefore(rows[r] + p * 2, end)),
                                     LoadBefore(rows[r + 4] + p * 2, end), 1);
    }
    if (pairs - p < 8) {
      const __m256i index = _mm256_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
      const __m256i live =
          _mm256_cmpgt_epi16(_mm256_set1_epi16(static_cast<int16_t>(pairs - p)), index);
      for (__m256i& row : v) row = _mm256_and_si256(row, live);
    }
    const __m256i lo01 = _mm256_unpacklo_epi16(v[0], v[1]);
    const __m256i hi01 = _mm256_unpackhi_epi16(v[0], v[1]);
    const __m256i lo23 = _mm256_unpacklo_epi16(v[2], v[3]);
    const __m256i hi23 = _mm256_unpackhi_epi16(v[2], v[3]);
    // Two pairs each: rows 0..3 in the low lane, 4..7 in the high one.
    const __m256i two[4] = {_mm256_unpacklo_epi32(lo01, lo23), _mm256_unpackhi_epi32(lo01, lo23),
                            _mm256_unpacklo_epi32(hi01, hi23), _mm256_unpackhi_epi32(hi01, hi23)};
    for (size_t i = 0; i < 4; ++i) {
      float* out = panels + (p + 2 * i) * 4;
      store(_mm256_castsi256_si128(two[i]), out);
      store(_mm256_extracti128_si256(two[i], 1), out + panel_floats);
    }
  }
}

// ---- q4tp: 5-bit codes of rungs of a ladder ----
//
// A rung is looked up byte by byte: `pshufb` finds 16 codes' bytes in 16 entries at once, and a
// ladder is two halves of 16 rungs in four byte planes. A vector holds row r in its low lane and
// row r + 4 in its high one, 16 groups each. Four look-ups of whole rungs by `vpermps` or a gather
// cost two to four times as much.

constexpr size_t kPlanes = 4;
constexpr size_t kRowTableBytes = 2 * kPlanes * 32;  // [half][plane][row r: 16][row r + 4: 16]
constexpr size_t kStepGroups = 16;

// tables[r]: of rows r and r + 4. The running product is a chain of 31 multiplications; 8 rows go
// through it together.
void LadderTables(const uint8_t* const (&params)[8], uint8_t* tables) {
  const float* exp2 = Exp2OfF16();
  alignas(32) float lo[8];
  alignas(32) float step[8];
  for (int r = 0; r < 8; ++r) {
    lo[r] = exp2[LoadU16(params[r])];
    step[r] = exp2[LoadU16(params[r] + 2)];
  }
  __m256 t = _mm256_load_ps(lo);
  const __m256 ratio = _mm256_load_ps(step);
  for (size_t half = 0; half < 2; ++half) {
    __m256i v[16];  // rung i: [row][byte] in each lane
    for (int i = 0; i < 16; ++i) {
      v[i] = _mm256_castps_si256(t);
      t = _mm256_mul_ps(t, ratio);
    }
    // 16 x 16 bytes transposed in each lane: each pass turns the 8 bits of an index of
    // [vector][byte] around by one.
    for (int pass = 0; pass < 4; ++pass) {
      __m256i turned[16];
      for (int i = 0; i < 8; ++i) {
        turned[2 * i] = _mm256_unpacklo_epi8(v[i], v[i + 8]);
        turned[2 * i + 1] = _mm256_unpackhi_epi8(v[i], v[i + 8]);
      }
      for (int i = 0; i < 16; ++i) v[i] = turned[i];
    }
    for (size_t i = 0; i < 16; ++i) {
      uint8_t* table = tables + i / kPlanes * kRowTableBytes + half * kPlanes * 32;
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(table + i % kPlanes * 32), v[i]);
    }
  }
}

// 16 codes of 5 bits in each lane, least significant bit first, to bytes: a code lies in two bytes,
// which a multiplication shifts up to the top of 16 bits.
MOEWE_INLINE __m256i UnpackCodes(__m256i packed) {
  const __m256i first = _mm256_setr_epi8(0, 1, 0, 1, 1, 2, 1, 2, 2, 3, 3, 4, 3, 4, 4, 5,  //
                                         0, 1, 0, 1, 1, 2, 1, 2, 2, 3, 3, 4, 3, 4, 4, 5);
  const __m256i second = _mm256_add_epi8(first, _mm256_set1_epi8(5));
  // 2^(11 - bit), where code k begins at bit 5 k % 8 of its window.
  const __m256i up =
      _mm256_setr_epi16(1 << 11, 1 << 6, 1 << 9, 1 << 4, 1 << 7, 1 << 10, 1 << 5,
                        1 << 8,  //
                        1 << 11, 1 << 6, 1 << 9, 1 << 4, 1 << 7, 1 << 10, 1 << 5, 1 << 8);
  const __m256i a = _mm256_mullo_epi16(_mm256_shuffle_epi8(packed, first), up);
  const __m256i b = _mm256_mullo_epi16(_mm256_shuffle_epi8(packed, second), up);
  return _mm256_packus_epi16(_mm256_srli_epi16(a, 11), _mm256_srli_epi16(b, 11));
}

// Rungs of 16 codes in each lane: out[i] = those of codes 4 i .. 4 i + 3.
MOEWE_INLINE void LookUp(const uint8_t* tables, __m256i codes, __m256 (&out)[4]) {
  const __m256i upper_half = _mm256_slli_epi16(codes, 3);  // bit 4 of a code to a byte's sign
  __m256i plane[kPlanes];
  for (size_t b = 0; b < kPlanes; ++b) {
    plane[b] = _mm256_blendv_epi8(_mm256_shuffle_epi8(Load(tables + b * 32), codes),
                                  _mm256_shuffle_epi8(Load(tables + (kPlanes + b) * 32), codes),
                                  upper_half);
  }
  const __m256i lo01 = _mm256_unpacklo_epi8(plane[0], plane[1]);
  const __m256i hi01 = _mm256_unpackhi_epi8(plane[0], plane[1]);
  const __m256i lo23 = _mm256_unpacklo_epi8(plane[2], plane[3]);
  const __m256i hi23 = _mm256_unpackhi_epi8(plane[2], plane[3]);
  out[0] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(lo01, lo23));
  out[1] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(lo01, lo23));
  out[2] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(hi01, hi23));
  out[3] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(hi01, hi23));
}

void LadderPanels(const uint8_t* const (&codes)[8], const uint8_t* end, const uint8_t* tables,
                  size_t groups, const uint8_t* ahead, size_t panel_floats, float* panels) {
  for (size_t g = 0; g < groups; g += kStepGroups) {
    if (ahead != nullptr) {  // of the 32 lines that 16 groups of 8 rows have
      PrefetchLines(ahead, 8);
      ahead += 8 * kCacheLine;
    }
    const size_t at = g / 8 * 5;
    __m256 rung[4][4];  // of rows r and r + 4, groups 4 i .. 4 i + 3
    for (size_t r = 0; r < 4; ++r) {
      const __m256i packed =
          _mm256_inserti128_si256(_mm256_castsi128_si256(LoadBefore(codes[r] + at, end)),
                                  LoadBefore(codes[r + 4] + at, end), 1);
      LookUp(tables + r * kRowTableBytes, UnpackCodes(packed), rung[r]);
    }
    float* p = panels + g * 4;
    for (size_t i = 0; i < 4; ++i, p += 16) {
      __m256 m[4];  // a group each: rows 0..3, rows 4..7
      Transpose4(rung[0][i], rung[1][i], rung[2][i], rung[3][i], m);
      _mm256_storeu_ps(p, _mm256_permute2f128_ps(m[0], m[1], 0x20));
      _mm256_storeu_ps(p + 8, _mm256_permute2f128_ps(m[2], m[3], 0x20));
      _mm256_storeu_ps(p + panel_floats, _mm256_permute2f128_ps(m[0], m[1], 0x31));
      _mm256_storeu_ps(p + panel_floats + 8, _mm256_permute2f128_ps(m[2], m[3], 0x31));
    }
  }
}

}  // namespace

void ScalePanelsAvx2(const Matrix& w, uint32_t row, const uint8_t* ahead, float* panels) {
  const size_t groups = w.cols / kGroup;
  const size_t padded = PreparedRow::PaddedGroups(w.cols);
  const size_t panel_floats = Int8PanelFloats(w.cols);
  size_t at[8];
  for (uint32_t r = 0; r < 8; ++r) at[r] = std::min(row + r, w.rows - 1);
  if (w.dtype == DType::kSmoeQ4) {
    return PairPanels<4>(w, at, kSmoeQ4Unit, ahead, panel_floats, panels);
  }
  if (w.dtype == DType::kSmoeQ2) {
    return PairPanels<2>(w, at, kSmoeQ2Unit, ahead, panel_floats, panels);
  }
  if (w.dtype == DType::kQ4Block) {
    const Q4BlockLayout layout(w);
    BlockScales scales{{}, groups};
    for (int r = 0; r < 8; ++r) scales.row[r] = layout.scales + at[r] * groups * 2;
    Panels(scales, groups, ahead, panel_floats, panels);
  } else if (w.dtype == DType::kQ4Tiled) {
    TileScales scales{{}, groups};
    for (int r = 0; r < 8; ++r) scales.row[r] = w.bytes.data() + at[r] * groups * kTileBytes;
    Panels(scales, groups, ahead, panel_floats, panels);
  } else {
    const Q4tpLayout layout(w);
    auto* tables = reinterpret_cast<uint8_t*>(panels + 2 * panel_floats);
    const uint8_t* codes[8];
    const uint8_t* params[8];
    for (int r = 0; r < 8; ++r) {
      codes[r] = layout.codes + at[r] * layout.code_bytes;
      params[r] = layout.params + at[r] * 4;
    }
    LadderTables(params, tables);
    LadderPanels(codes, w.bytes.data() + w.bytes.size(), tables, groups, ahead, panel_floats,
                 panels);
  }
  for (size_t half = 0; half < 2 && groups < padded; ++half) {
    std::memset(panels + half * panel_floats + groups * 4, 0, (padded - groups) * 16);
  }
}

}  // namespace moewe::kernels

#include "kernels/target_end.h"
#endif  // __x86_64__
