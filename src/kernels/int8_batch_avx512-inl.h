// Many activation rows times a matrix of 8-bit weights, 4-bit or 2-bit codes on AVX-512 VNNI.
// Included after int8_avx512-inl.h, by int8_avx512.cc and its test.
//
// Row by row, a group's sums have to be gathered across a register for every token. Here 32 rows
// are laid out once for all tokens so that a 32-bit lane is a row, and nothing is gathered:
//
//   [group][8 steps][row 0: 4 bytes] ... [row 31: 4 bytes]     weights as unsigned bytes
//
// A step multiplies four weights of each row with four activations, the same for all rows. Which
// elements those are is a matter of how the codes lie: Nibbles: step i takes even elements 8 i,
// 8 i + 2, .. 8 i + 6 for i < 4 (a group's low nibbles), odd ones for the other four. Crumbs: step
// i takes elements 16 (i % 2) + i / 2, and 4, 8 and 12 on. Bytes: 4 i to 4 i + 3. A chain of the
// rule is one pass over every fourth group, so that a tile needs one accumulator a token and 16
// rows.

constexpr size_t kBatchRows = 32;
constexpr size_t kBatchSteps = 8;
constexpr size_t kBatchStepBytes = kBatchRows * 4;
constexpr size_t kBatchGroupBytes = kBatchSteps * kBatchStepBytes;
// Sums and chains of two vectors of rows: 24 of 32 registers.
constexpr int kBatchTileTokens = 6;

MOEWE_INLINE __m512i Broadcast512(const uint8_t* p) {
  return _mm512_set1_epi32(static_cast<int>(LoadU32(p)));
}

// 16 bytes at `at` of rows r, r + 4, r + 8 and r + 12 in the lanes of v[r], turned: dwords[i] is
// dword i of all 16 rows.
MOEWE_INLINE void LoadTurned(const uint8_t* const* rows, size_t at, __m512i (&dwords)[4]) {
  __m512i v[4];
  for (size_t r = 0; r < 4; ++r) {
    const auto lane = [&](size_t i) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[r + 4 * i] + at));
    };
    v[r] = _mm512_castsi128_si512(lane(0));
    v[r] = _mm512_inserti32x4(v[r], lane(1), 1);
    v[r] = _mm512_inserti32x4(v[r], lane(2), 2);
    v[r] = _mm512_inserti32x4(v[r], lane(3), 3);
  }
  const __m512i lo01 = _mm512_unpacklo_epi32(v[0], v[1]);
  const __m512i hi01 = _mm512_unpackhi_epi32(v[0], v[1]);
  const __m512i lo23 = _mm512_unpacklo_epi32(v[2], v[3]);
  const __m512i hi23 = _mm512_unpackhi_epi32(v[2], v[3]);
  dwords[0] = _mm512_unpacklo_epi64(lo01, lo23);
  dwords[1] = _mm512_unpackhi_epi64(lo01, lo23);
  dwords[2] = _mm512_unpacklo_epi64(hi01, hi23);
  dwords[3] = _mm512_unpackhi_epi64(hi01, hi23);
}

// Half a panel: 16 rows, whose first codes are at rows[r], `stride` bytes from group to group.
template <Input kInput>
void PackHalf(const uint8_t* const* rows, size_t stride, size_t groups, uint8_t* panel) {
  const auto store = [&](size_t g, size_t step, __m512i v) {
    _mm512_storeu_si512(panel + g * kBatchGroupBytes + step * kBatchStepBytes, v);
  };
  __m512i dwords[4];
  if constexpr (kInput == Input::kOddCrumbs) {
    const __m512i mask = _mm512_set1_epi8(3);
    for (size_t g = 0; g < groups; g += 2) {
      LoadTurned(rows, g * stride, dwords);
      for (size_t i = 0; i < 4; ++i) {
        const size_t group = g + i / 2;
        store(group, i % 2, _mm512_and_si512(dwords[i], mask));
        store(group, i % 2 + 2, _mm512_and_si512(_mm512_srli_epi16(dwords[i], 2), mask));
        store(group, i % 2 + 4, _mm512_and_si512(_mm512_srli_epi16(dwords[i], 4), mask));
        store(group, i % 2 + 6, _mm512_and_si512(_mm512_srli_epi16(dwords[i], 6), mask));
      }
    }
  } else if constexpr (kInput == Input::kBytes) {
    const __m512i flip = _mm512_set1_epi8(-128);
    for (size_t g = 0; g < groups; ++g) {
      for (size_t half = 0; half < 2; ++half) {
        LoadTurned(rows, g * stride + half * 16, dwords);
        for (size_t i = 0; i < 4; ++i) store(g, half * 4 + i, _mm512_xor_si512(dwords[i], flip));
      }
    }
  } else {
    const __m512i mask = _mm512_set1_epi8(15);
    for (size_t g = 0; g < groups; ++g) {
      LoadTurned(rows, g * stride, dwords);
      for (size_t i = 0; i < 4; ++i) {
        store(g, i, _mm512_and_si512(dwords[i], mask));
        store(g, i + 4, _mm512_and_si512(_mm512_srli_epi16(dwords[i], 4), mask));
      }
    }
  }
}

// Where the activations of step i of group g lie.
template <Input kInput>
MOEWE_INLINE size_t BatchStepAt(size_t g, size_t i) {
  if constexpr (kInput == Input::kOddCrumbs) {
    return g / 4 * 128 + g % 4 * 8 + i / 2 * 32 + i % 2 * 4;
  }
  if constexpr (kInput == Input::kBytes) return g * 32 + i * 4;
  return g / 4 * 128 + g % 4 * 16 + i / 4 * 64 + i % 4 * 4;
}

constexpr bool HasGroupScales(Input input) { return input != Input::kBytes; }
// Groups that share a scale.
constexpr size_t GroupsAScale(Input input) { return input == Input::kNibbles ? 1 : 2; }

// Weights to be read soon, and how many cache lines of them to ask for.
struct Ahead {
  const uint8_t* at = nullptr;
  size_t lines = 0;
};

// 32 rows times T activation rows. `scales`: [groups that share one][32 rows]; of bytes, [32 rows].
template <Input kInput, int T>
void BatchTile(const uint8_t* panel, const float* scales, size_t groups, const uint8_t* const* x,
               size_t padded, Ahead ahead, float (*out)[kBatchRows]) {
  const size_t lines = (ahead.lines + groups - 1) / groups;
  alignas(64) float chains[4][T][kBatchRows];
  for (size_t j = 0; j < 4; ++j) {
    __m512 chain[T][2];
    for (int t = 0; t < T; ++t) chain[t][0] = chain[t][1] = _mm512_setzero_ps();
    for (size_t g = j; g < groups; g += 4) {
      const uint8_t* w = panel + g * kBatchGroupBytes;
      PrefetchLines(ahead.at, lines);
      ahead.at += lines * kCacheLine;
      __m512i s[T][2];
      for (int t = 0; t < T; ++t) s[t][0] = s[t][1] = _mm512_setzero_si512();
#pragma GCC unroll 8
      for (size_t i = 0; i < kBatchSteps; ++i) {
        const __m512i low = Load512(w + i * kBatchStepBytes);
        const __m512i high = Load512(w + i * kBatchStepBytes + 64);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
          const __m512i q = Broadcast512(x[t] + BatchStepAt<kInput>(g, i));
          s[t][0] = _mm512_dpbusd_epi32(s[t][0], low, q);
          s[t][1] = _mm512_dpbusd_epi32(s[t][1], high, q);
        }
      }
      __m512 scale[2] = {_mm512_set1_ps(1.0f), _mm512_set1_ps(1.0f)};
      if constexpr (HasGroupScales(kInput)) {
        const float* at = scales + g / GroupsAScale(kInput) * kBatchRows;
        scale[0] = _mm512_loadu_ps(at);
        scale[1] = _mm512_loadu_ps(at + 16);
      }
      const size_t place = kInput == Input::kOddCrumbs ? CrumbPlace(g) : g;
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
        const __m512i offset = Broadcast512(x[t] + padded * 48 + place * 16);
        const __m512 dx = _mm512_castsi512_ps(Broadcast512(x[t] + padded * 32 + place * 16));
        for (int half = 0; half < 2; ++half) {
          __m512i sum = s[t][half];
          if constexpr (GroupsAScale(kInput) == 2 && HasGroupScales(kInput)) {
            sum = _mm512_add_epi32(sum, sum);  // odd codes
          }
          const __m512 value = _mm512_cvtepi32_ps(_mm512_sub_epi32(sum, offset));
          const __m512 factor = HasGroupScales(kInput) ? _mm512_mul_ps(scale[half], dx) : dx;
          chain[t][half] = _mm512_fmadd_ps(value, factor, chain[t][half]);
        }
      }
    }
    for (int t = 0; t < T; ++t) {
      _mm512_store_ps(chains[j][t], chain[t][0]);
      _mm512_store_ps(chains[j][t] + 16, chain[t][1]);
    }
  }
  for (int t = 0; t < T; ++t) {
    for (size_t r = 0; r < kBatchRows; r += 16) {
      const auto of = [&](size_t j) { return _mm512_load_ps(chains[j][t] + r); };
      __m512 sum = _mm512_add_ps(_mm512_add_ps(of(0), of(2)), _mm512_add_ps(of(1), of(3)));
      if constexpr (!HasGroupScales(kInput)) sum = _mm512_mul_ps(_mm512_loadu_ps(scales + r), sum);
      _mm512_store_ps(out[t] + r, sum);
    }
  }
}

// Of 32 rows from `block` on, the last one repeated where there are fewer.
struct BatchBlock {
  const uint8_t* rows[kBatchRows];  // the first codes
  size_t stride;                    // from group to group
};

inline BatchBlock BlockAt(const Matrix& w, uint32_t block) {
  const size_t groups = w.cols / kGroup;
  BatchBlock b{};
  const uint8_t* first = w.bytes.data();
  size_t row_bytes = 0;
  if (w.dtype == DType::kQ8Row || w.dtype == DType::kQ82f) {
    b.stride = kGroup;
    first = Q8Layout(w).quants;
    row_bytes = w.cols;
  } else {
    b.stride = w.dtype == DType::kQ4Tiled  ? kTileBytes
               : w.dtype == DType::kSmoeQ2 ? kGroupCrumbs
                                           : kGroupNibbles;
    if (w.dtype == DType::kQ4Tiled) first += 2;
    row_bytes = groups * b.stride;
  }
  for (uint32_t r = 0; r < kBatchRows; ++r) {
    b.rows[r] = first + std::min(block + r, w.rows - 1) * row_bytes;
  }
  return b;
}

// [groups that share a scale][32 rows] from panels of four rows; of bytes, [32 rows].
template <Input kInput>
void BatchScales(const Matrix& w, uint32_t block, float* panels, float* scales) {
  if constexpr (kInput == Input::kBytes) {
    const Q8Layout layout(w);
    for (uint32_t r = 0; r < kBatchRows; ++r) {
      scales[r] = LoadF16(layout.row_scales + size_t{std::min(block + r, w.rows - 1)} * 2);
    }
    return;
  }
  const size_t count = w.cols / kGroup / GroupsAScale(kInput);
  for (uint32_t eight = 0; eight < kBatchRows; eight += 8) {
    ScalePanels512(w, std::min(block + eight, w.rows - 1), nullptr, panels);
    for (size_t half = 0; half < 2; ++half) {
      const float* from = panels + half * Int8PanelFloats(w.cols);
      float* to = scales + eight + half * 4;
      for (size_t i = 0; i < count; ++i) {
        _mm_storeu_ps(to + i * kBatchRows, _mm_loadu_ps(from + i * 4));
      }
    }
  }
}

template <Input kInput>
void Batch512(const Matrix& w, uint32_t row_begin, uint32_t row_end, const uint8_t* const* x,
              size_t n, float* const* y, float* scratch, const NextRows& next) {
  const size_t padded = PreparedRow::PaddedGroups(w.cols);
  const size_t whole = w.cols / kGroup;
  const size_t groups = kInput == Input::kBytes ? (w.cols + kGroup - 1) / kGroup : whole;
  float* scales = scratch + Int8ScalesFloats(w.cols);
  auto* panel = reinterpret_cast<uint8_t*>(scales + padded * kBatchRows);
  for (uint32_t block = row_begin; block < row_end; block += kBatchRows) {
    const size_t live = std::min<size_t>(kBatchRows, row_end - block);
    BatchBlock rows = BlockAt(w, block);
    BatchScales<kInput>(w, block, scratch, scales);
    for (size_t half = 0; half < 2; ++half) {
      PackHalf<kInput>(rows.rows + half * 16, rows.stride, whole, panel + half * 64);
    }
    if (groups > whole) {  // the rest of 8-bit rows
      alignas(64) uint8_t tails[kBatchRows][kGroup] = {};
      for (size_t r = 0; r < kBatchRows; ++r) {
        std::memcpy(tails[r], rows.rows[r] + whole * kGroup, w.cols - whole * kGroup);
        rows.rows[r] = tails[r];
      }
      for (size_t half = 0; half < 2; ++half) {
        PackHalf<kInput>(rows.rows + half * 16, rows.stride, 1,
                         panel + whole * kBatchGroupBytes + half * 64);
      }
    }
    Ahead ahead;
    const size_t tiles = (n + kBatchTileTokens - 1) / kBatchTileTokens;
    if (block + kBatchRows < row_end) {
      ahead.at = RowWeights(w, block + kBatchRows);
    } else if (next.w != nullptr) {
      ahead.at = RowWeights(*next.w, next.row);
    }
    if (ahead.at != nullptr) ahead.lines = (kBatchRows * rows.stride * groups / kCacheLine) / tiles;
    const auto tile = [&]<int T>(size_t t) {
      alignas(64) float out[T][kBatchRows];
      BatchTile<kInput, T>(panel, scales, groups, x + t, padded, ahead, out);
      ahead.at += ahead.lines * kCacheLine;
      for (int i = 0; i < T; ++i) {
        std::memcpy(y[t + static_cast<size_t>(i)] + (block - row_begin), out[i],
                    live * sizeof(float));
      }
    };
    size_t t = 0;
    for (; t + kBatchTileTokens <= n; t += kBatchTileTokens) {
      tile.template operator()<kBatchTileTokens>(t);
    }
    if (n - t == 5) tile.template operator()<5>(t);
    if (n - t == 4) tile.template operator()<4>(t);
    if (n - t == 3) tile.template operator()<3>(t);
    if (n - t == 2) tile.template operator()<2>(t);
    if (n - t == 1) tile.template operator()<1>(t);
  }
}

// Tokens from which on a batch is worth its panels.
constexpr size_t kBatch512 = 8;

void Packed512(const Matrix& w, uint32_t row_begin, uint32_t row_end, const uint8_t* const* x,
               size_t n, float* const* y, float* scratch, const NextRows& next) {
  if (n < kBatch512) {
    return PackedOf<Tiles512>(w, row_begin, row_end, x, n, y, scratch, next);
  }
  switch (w.dtype) {
    case DType::kSmoeQ4:
      return Batch512<Input::kOddNibbles>(w, row_begin, row_end, x, n, y, scratch, next);
    case DType::kSmoeQ2:
      return Batch512<Input::kOddCrumbs>(w, row_begin, row_end, x, n, y, scratch, next);
    default:
      return Batch512<Input::kNibbles>(w, row_begin, row_end, x, n, y, scratch, next);
  }
}

void Bytes512(const Matrix& w, uint32_t row_begin, uint32_t row_end, const uint8_t* const* x,
              size_t n, float* const* y, float* scratch, const NextRows& next) {
  if (n < kBatch512) {
    return BytesOf<Tiles512>(w, row_begin, row_end, x, n, y, scratch, next);
  }
  Batch512<Input::kBytes>(w, row_begin, row_end, x, n, y, scratch, next);
}
