// The loops around the register tiles of an instruction set: blocks of 8 rows share a scale panel,
// 4 rows enter a tile together, tokens go through in tiles of up to kMaxTile. Included inside a
// target region and an anonymous namespace by int8_avx2.cc and int8_avx512-inl.h, which give
// `Tiles`:
//   template <size_t kStride, bool kOdd, int T>
//   static void Nibbles(w[4], groups, panel, x, padded, ahead, out[T][4])
//   template <int T> static void Crumbs(w[4], groups, panel, x, padded, ahead, out[T][4])
//   template <int T> static void Bytes(w[4], cols, x, padded, ahead, out[T][4])
//   static void ScalePanels(w, row, ahead, panels)   // as ScalePanelsAvx2
//   template <size_t kStride> static constexpr bool kNeedsPanels   // or Nibbles finds the scales
//   kReadsThrough   // whether packed rows are worth a look in order before they are worked on
// kOdd: of Input::kOddNibbles. Of tiles, w begins kTileCodes behind the first one. With T = 1
// memory's requests may be theirs: from `ahead` on, for three quarters of what they read if there
// are panels, else for as much.

// Rows past the end repeat the last one and are not stored.
template <class Tile>
inline void ForTokenTiles(size_t n, const Tile& tile) {
  size_t t = 0;
  for (; t + 4 <= n; t += 4) tile.template operator()<4>(t);
  switch (n - t) {
    case 3:
      tile.template operator()<3>(t);
      break;
    case 2:
      tile.template operator()<2>(t);
      break;
    case 1:
      tile.template operator()<1>(t);
      break;
    default:
      break;
  }
}

template <class Tiles, Input kInput, size_t kStride>
void PackedRows(const Matrix& w, const uint8_t* first_codes, uint32_t row_begin, uint32_t row_end,
                const uint8_t* const* x, size_t n, float* const* y, float* panels,
                const NextRows& next) {
  const size_t groups = w.cols / kGroup;
  const size_t padded = PreparedRow::PaddedGroups(w.cols);
  const size_t row_bytes = groups * kStride;
  const WalkAhead walk(w, row_end, next);
  for (uint32_t block = row_begin; block < row_end; block += 8) {
    const uint8_t* block_codes = first_codes + block * row_bytes;
    if (n == 1) walk.Scales(block);
    constexpr bool kPanels = Tiles::template kNeedsPanels<kStride>;
    if constexpr (kPanels) {
      Tiles::ScalePanels(w, block, n == 1 ? walk.From(block_codes) : nullptr, panels);
    }
    for (uint32_t row = block; row < row_end && row < block + 8; row += 4) {
      const float* panel = panels + (row - block) / 4 * Int8PanelFloats(w.cols);
      const uint8_t* rows[4];
      for (uint32_t r = 0; r < 4; ++r) {
        const uint32_t at = row + r < w.rows ? row + r : w.rows - 1;
        rows[r] = first_codes + at * row_bytes;
      }
      const uint32_t live = row_end - row < 4 ? row_end - row : 4;
      if (Tiles::kReadsThrough && n == 1) ReadThrough(rows[0], live * row_bytes);
      // Of the block's share, what the panels have left: 3 rows' bytes beside each 4 rows.
      const uint32_t asked = kPanels ? 2 + (row - block) / 4 * 3 : row - block;
      const uint8_t* ahead = walk.From(block_codes + asked * row_bytes);
      ForTokenTiles(n, [&]<int T>(size_t t) {
        alignas(64) float out[T][4];
        if constexpr (kInput == Input::kOddCrumbs) {
          Tiles::template Crumbs<T>(rows, groups, panel, x + t, padded, ahead, out);
        } else {
          Tiles::template Nibbles<kStride, kInput == Input::kOddNibbles, T>(
              rows, groups, panel, x + t, padded, ahead, out);
        }
        for (int i = 0; i < T; ++i) {
          for (uint32_t r = 0; r < live; ++r)
            y[t + static_cast<size_t>(i)][row - row_begin + r] = out[i][r];
        }
      });
    }
  }
}

template <class Tiles>
void PackedOf(const Matrix& w, uint32_t row_begin, uint32_t row_end, const uint8_t* const* x,
              size_t n, float* const* y, float* scratch, const NextRows& next) {
  const uint8_t* codes = w.bytes.data();
  switch (w.dtype) {
    case DType::kQ4Tiled:
      return PackedRows<Tiles, Input::kNibbles, kTileBytes>(w, codes + Tiles::kTileCodes, row_begin,
                                                            row_end, x, n, y, scratch, next);
    case DType::kSmoeQ4:
      return PackedRows<Tiles, Input::kOddNibbles, kGroupNibbles>(w, codes, row_begin, row_end, x,
                                                                  n, y, scratch, next);
    case DType::kSmoeQ2:
      return PackedRows<Tiles, Input::kOddCrumbs, kGroupCrumbs>(w, codes, row_begin, row_end, x, n,
                                                                y, scratch, next);
    default:
      return PackedRows<Tiles, Input::kNibbles, kGroupNibbles>(w, codes, row_begin, row_end, x, n,
                                                               y, scratch, next);
  }
}

template <class Tiles>
void BytesOf(const Matrix& w, uint32_t row_begin, uint32_t row_end, const uint8_t* const* x,
             size_t n, float* const* y, float*, const NextRows& next) {
  const Q8Layout layout(w);
  const WalkAhead walk(w, row_end, next);
  const size_t padded = PreparedRow::PaddedGroups(w.cols);
  for (uint32_t row = row_begin; row < row_end; row += 4) {
    const uint8_t* rows[4];
    float scale[4];
    for (uint32_t r = 0; r < 4; ++r) {
      const uint32_t at = row + r < w.rows ? row + r : w.rows - 1;
      rows[r] = layout.quants + size_t{at} * w.cols;
      scale[r] = LoadF16(layout.row_scales + size_t{at} * 2);
    }
    const uint32_t live = row_end - row < 4 ? row_end - row : 4;
    if (n == 1) ReadThrough(rows[0], live * size_t{w.cols});
    ForTokenTiles(n, [&]<int T>(size_t t) {
      alignas(64) float out[T][4];
      Tiles::template Bytes<T>(rows, w.cols, x + t, padded, walk.From(rows[0]), out);
      for (int i = 0; i < T; ++i) {
        for (uint32_t r = 0; r < live; ++r) {
          y[t + static_cast<size_t>(i)][row - row_begin + r] = scale[r] * out[i][r];
        }
      }
    });
  }
}
