// Scales of rows of packed codes as f32, on AVX-512. Included by int8_avx512-inl.h.
//
// 16 groups of a row are a vector in which place i of lane l is group 4 i + l. Then four rows' are
// turned within lanes only, and come out as the vectors of the four steps that will read them.

// Four rows' scales of 16 groups to [16 groups][4 rows].
MOEWE_INLINE void StoreScaleSteps(const __m512 (&row)[4], float* panel) {
  const __m512i lo01 = _mm512_castps_si512(_mm512_unpacklo_ps(row[0], row[1]));
  const __m512i hi01 = _mm512_castps_si512(_mm512_unpackhi_ps(row[0], row[1]));
  const __m512i lo23 = _mm512_castps_si512(_mm512_unpacklo_ps(row[2], row[3]));
  const __m512i hi23 = _mm512_castps_si512(_mm512_unpackhi_ps(row[2], row[3]));
  _mm512_storeu_si512(panel, _mm512_unpacklo_epi64(lo01, lo23));
  _mm512_storeu_si512(panel + 16, _mm512_unpackhi_epi64(lo01, lo23));
  _mm512_storeu_si512(panel + 32, _mm512_unpacklo_epi64(hi01, hi23));
  _mm512_storeu_si512(panel + 48, _mm512_unpackhi_epi64(hi01, hi23));
}

// The scales of four tiles of q4_tiled that begin at each p[r], nine words apart in the 64 bytes
// from there on: v[r]. Lane l has tile l of the four rows.
MOEWE_INLINE __m512 TileScales512(const __m512i (&v)[4]) {
  // 32 is the first word of the second vector.
  const __m256i order =
      _mm256_setr_epi16(0, 32, 0, 32, 9, 41, 9, 41, 18, 50, 18, 50, 27, 59, 27, 59);
  const __m512i wide = _mm512_castsi256_si512(order);
  const __m256i first = _mm512_castsi512_si256(_mm512_permutex2var_epi16(v[0], wide, v[1]));
  const __m256i second = _mm512_castsi512_si256(_mm512_permutex2var_epi16(v[2], wide, v[3]));
  return _mm512_cvtph_ps(_mm256_blend_epi32(first, second, 0xAA));
}

inline void TilePanels512(const uint8_t* const (&rows)[8], size_t groups, size_t panel_floats,
                          float* panels) {
  for (size_t half = 0; half < 2; ++half) {
    for (size_t g = 0; g < groups; g += 4) {
      const size_t live = std::min<size_t>(64, (groups - g) * kTileBytes);
      const auto mask = ~__mmask64{0} >> (64 - live);
      __m512i v[4];
      for (size_t r = 0; r < 4; ++r) {
        v[r] = _mm512_maskz_loadu_epi8(mask, rows[half * 4 + r] + g * kTileBytes);
      }
      _mm512_storeu_ps(panels + half * panel_floats + g * 4, TileScales512(v));
    }
  }
}

// 16 f16 scales in order.
MOEWE_INLINE __m512 HalvesByLane(__m256i halves) {
  const __m256i order = _mm256_setr_epi16(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_cvtph_ps(_mm256_permutexvar_epi16(order, halves));
}

// Two panels of [groups][4 rows], zeros up to a multiple of 16 groups, of scales that a row has
// beside each other: q4_block.
inline void HalfPanels512(const uint8_t* const (&scales)[8], size_t groups, const uint8_t* ahead,
                          size_t panel_floats, float* panels) {
  for (size_t half = 0; half < 2; ++half) {
    float* out = panels + half * panel_floats;
    for (size_t g = 0; g < groups; g += 16) {
      if (ahead != nullptr) {  // 4 of the 16 lines that 16 groups of 4 rows have
        PrefetchLines(ahead, 4);
        ahead += 4 * kCacheLine;
      }
      const size_t live = std::min<size_t>(16, groups - g);
      const auto mask = static_cast<__mmask16>((1u << live) - 1);
      __m512 row[4];
      for (size_t r = 0; r < 4; ++r) {
        row[r] = HalvesByLane(_mm256_maskz_loadu_epi16(mask, scales[half * 4 + r] + g * 2));
      }
      StoreScaleSteps(row, out + g * 4);
    }
  }
}

// q4tp: all 32 rungs of a row's ladder are two vectors, in which one instruction finds 16 scales.
constexpr size_t kRungs = 32;

// tables[row][rung]. The running product is a chain of 31 multiplications; 8 rows go through it
// together.
inline void Ladders512(const uint8_t* const (&params)[8], float* tables) {
  const float* exp2 = Exp2OfF16();
  alignas(32) float lo[8];
  alignas(32) float step[8];
  for (size_t r = 0; r < 8; ++r) {
    lo[r] = exp2[LoadU16(params[r])];
    step[r] = exp2[LoadU16(params[r] + 2)];
  }
  __m256 t = _mm256_load_ps(lo);
  const __m256 ratio = _mm256_load_ps(step);
  for (size_t first = 0; first < kRungs; first += 8) {
    __m256 v[8];  // a rung of all rows each
    for (__m256& rung : v) {
      rung = t;
      t = _mm256_mul_ps(t, ratio);
    }
    __m256 pairs[8];
    for (size_t i = 0; i < 8; i += 2) {
      pairs[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
      pairs[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
    }
    __m256 fours[8];  // rows r and r + 4, rungs 0..3 of `first` on in the first four
    for (size_t i = 0; i < 8; i += 4) {
      fours[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
      fours[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xEE);
      fours[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
      fours[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xEE);
    }
    for (size_t r = 0; r < 4; ++r) {
      float* to = tables + r * kRungs + first;
      _mm256_storeu_ps(to, _mm256_permute2f128_ps(fours[r], fours[r + 4], 0x20));
      _mm256_storeu_ps(to + 4 * kRungs, _mm256_permute2f128_ps(fours[r], fours[r + 4], 0x31));
    }
  }
}

// 16 codes of 5 bits to 32-bit elements whose low five bits they are.
MOEWE_INLINE __m512i SpreadCodes(__m128i packed) {
  // Element (l, i) has the two bytes around bit 5 (4 i + l).
  alignas(64) static constexpr auto kBytes = [] {
    struct Table {
      uint8_t byte[64];
      uint32_t shift[16];
    } table{};
    for (uint32_t e = 0; e < 16; ++e) {
      const uint32_t bit = 5 * (4 * (e % 4) + e / 4);
      for (uint32_t b = 0; b < 4; ++b) {
        table.byte[4 * e + b] = static_cast<uint8_t>(bit / 8 + (b == 1 ? 1 : 0));
      }
      table.shift[e] = bit % 8;
    }
    return table;
  }();
  const __m512i spread =
      _mm512_permutexvar_epi8(Load512(kBytes.byte), _mm512_castsi128_si512(packed));
  return _mm512_srlv_epi32(spread, Load512(kBytes.shift));
}

inline void LadderPanels512(const uint8_t* const (&codes)[8], const uint8_t* end,
                            const float* tables, size_t groups, const uint8_t* ahead,
                            size_t panel_floats, float* panels) {
  for (size_t half = 0; half < 2; ++half) {
    __m512 ladder[4][2];
    for (size_t r = 0; r < 4; ++r) {
      ladder[r][0] = _mm512_loadu_ps(tables + (half * 4 + r) * kRungs);
      ladder[r][1] = _mm512_loadu_ps(tables + (half * 4 + r) * kRungs + 16);
    }
    for (size_t g = 0; g < groups; g += 16) {
      if (ahead != nullptr) {  // 4 of the 16 lines that 16 groups of 4 rows have
        PrefetchLines(ahead, 4);
        ahead += 4 * kCacheLine;
      }
      __m512 row[4];
      for (size_t r = 0; r < 4; ++r) {
        const uint8_t* p = codes[half * 4 + r] + g / 8 * 5;
        __m128i packed;
        if (end - p >= 16) {
          packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
        } else {
          alignas(16) uint8_t rest[16] = {};
          std::memcpy(rest, p, static_cast<size_t>(end - p));
          packed = _mm_load_si128(reinterpret_cast<const __m128i*>(rest));
        }
        row[r] = _mm512_permutex2var_ps(ladder[r][0], SpreadCodes(packed), ladder[r][1]);
      }
      StoreScaleSteps(row, panels + half * panel_floats + g * 4);
    }
  }
}

// As ScalePanelsAvx2.
inline void ScalePanels512(const Matrix& w, uint32_t row, const uint8_t* ahead, float* panels) {
  if (w.dtype == DType::kSmoeQ4 || w.dtype == DType::kSmoeQ2) {
    return ScalePanelsAvx2(w, row, ahead, panels);
  }
  const size_t groups = w.cols / kGroup;
  const size_t padded = PreparedRow::PaddedGroups(w.cols);
  const size_t panel_floats = Int8PanelFloats(w.cols);
  size_t at[8];
  for (uint32_t r = 0; r < 8; ++r) at[r] = std::min(row + r, w.rows - 1);
  if (w.dtype == DType::kQ4Block) {
    const Q4BlockLayout layout(w);
    const uint8_t* scales[8];
    for (size_t r = 0; r < 8; ++r) scales[r] = layout.scales + at[r] * groups * 2;
    HalfPanels512(scales, groups, ahead, panel_floats, panels);
  } else if (w.dtype == DType::kQ4Tiled) {
    const uint8_t* rows[8];
    for (size_t r = 0; r < 8; ++r) rows[r] = w.bytes.data() + at[r] * groups * kTileBytes;
    TilePanels512(rows, groups, panel_floats, panels);
  } else {
    const Q4tpLayout layout(w);
    float* tables = panels + 2 * panel_floats;
    const uint8_t* codes[8];
    const uint8_t* params[8];
    for (size_t r = 0; r < 8; ++r) {
      codes[r] = layout.codes + at[r] * layout.code_bytes;
      params[r] = layout.params + at[r] * 4;
    }
    Ladders512(params, tables);
    LadderPanels512(codes, w.bytes.data() + w.bytes.size(), tables, groups, ahead, panel_floats,
                    panels);
  }
  for (size_t half = 0; half < 2 && groups < padded; ++half) {
    std::memset(panels + half * panel_floats + groups * 4, 0, (padded - groups) * 16);
  }
}
