#include "kernels/float_product.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/isa.h"
#include "kernels/ladder.h"
#include "kernels/layout.h"
#include "kernels/reference.h"
#include "quant/codec.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/float_product.cc"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "kernels/float_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace moewe::kernels::HWY_NAMESPACE {

// ---- decoding ----

template <class Stored>
void ToFloats(const uint8_t* p, size_t n, float* out) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(Stored::Load(d, p, i), d, out + i);
  if (i < n) {
    alignas(64) float part[HWY_MAX_BYTES / sizeof(float)];
    hn::Store(LoadPart<Stored>(d, p, i, n - i), d, part);
    std::memcpy(out + i, part, (n - i) * sizeof(float));
  }
}

void DecodeQ8(const Q8Layout& layout, size_t row, size_t cols, float* out) {
  const DF d;
  const hn::Rebind<int8_t, DF> bytes;
  const hn::Rebind<int32_t, DF> ints;
  const size_t lanes = hn::Lanes(d);
  const auto* quants = reinterpret_cast<const int8_t*>(layout.quants + row * cols);
  const float scale = LoadF16(layout.row_scales + row * 2);
  const VF scales = hn::Set(d, scale);
  size_t i = 0;
  for (; i + lanes <= cols; i += lanes) {
    const VF q = hn::ConvertTo(d, hn::PromoteTo(ints, hn::LoadU(bytes, quants + i)));
    VF value = hn::Mul(q, scales);
    if (layout.col_field != nullptr) {
      value = hn::Mul(value, StoredF16::Load(d, layout.col_field, i));
    }
    hn::StoreU(value, d, out + i);
  }
  for (; i < cols; ++i) {
    out[i] = static_cast<float>(quants[i]) * scale;
    if (layout.col_field != nullptr) out[i] *= LoadF16(layout.col_field + i * 2);
  }
}

// 32 values from 16 bytes: low nibble first, offset 8.
HWY_INLINE void DecodeGroup(const uint8_t* nibbles, float scale, float* out) {
  const hn::CappedTag<uint8_t, kGroupNibbles> bytes;
  alignas(64) uint8_t codes[kGroup];
  for (size_t i = 0; i < kGroupNibbles; i += hn::Lanes(bytes)) {
    const auto both = hn::LoadU(bytes, nibbles + i);
    hn::StoreInterleaved2(hn::And(both, hn::Set(bytes, uint8_t{15})), hn::ShiftRight<4>(both),
                          bytes, codes + 2 * i);
  }
  const hn::CappedTag<float, kGroup> d;
  const hn::Rebind<uint8_t, decltype(d)> part;
  const hn::Rebind<int32_t, decltype(d)> ints;
  for (size_t i = 0; i < kGroup; i += hn::Lanes(d)) {
    const auto q = hn::Sub(hn::PromoteTo(ints, hn::LoadU(part, codes + i)), hn::Set(ints, 8));
    hn::StoreU(hn::Mul(hn::ConvertTo(d, q), hn::Set(d, scale)), d, out + i);
  }
}

// 32 values of a vault's encoding, as its codec computes them.
template <int kBits>
HWY_INLINE void DecodeSmoeGroup(const uint8_t* packed, float scale, float* out) {
  constexpr float kHalf = ((1 << kBits) - 1) / 2.0f;
  const hn::CappedTag<uint8_t, kGroup * kBits / 8> bytes;
  const auto mask = hn::Set(bytes, uint8_t{(1 << kBits) - 1});
  alignas(64) uint8_t codes[kGroup];
  for (size_t i = 0; i < kGroup * kBits / 8; i += hn::Lanes(bytes)) {
    const auto v = hn::LoadU(bytes, packed + i);
    if constexpr (kBits == 4) {
      hn::StoreInterleaved2(hn::And(v, mask), hn::ShiftRight<4>(v), bytes, codes + 2 * i);
    } else {
      hn::StoreInterleaved4(hn::And(v, mask), hn::And(hn::ShiftRight<2>(v), mask),
                            hn::And(hn::ShiftRight<4>(v), mask), hn::ShiftRight<6>(v), bytes,
                            codes + 4 * i);
    }
  }
  const hn::CappedTag<float, kGroup> d;
  const hn::Rebind<uint8_t, decltype(d)> part;
  const hn::Rebind<int32_t, decltype(d)> ints;
  for (size_t i = 0; i < kGroup; i += hn::Lanes(d)) {
    const auto code = hn::ConvertTo(d, hn::PromoteTo(ints, hn::LoadU(part, codes + i)));
    const auto level = hn::Div(hn::Sub(code, hn::Set(d, kHalf)), hn::Set(d, kHalf));
    hn::StoreU(hn::Mul(level, hn::Set(d, scale)), d, out + i);
  }
}

void DecodeSmoeRow(const Matrix& w, size_t row, float* out) {
  const SmoeLayout layout(w);
  const uint8_t* codes = layout.Codes(row);
  for (size_t g = 0; g < w.cols / kGroup; ++g, out += kGroup) {
    const float scale = LoadF16(layout.Scales(row) + g / 2 * 2);
    if (w.dtype == DType::kSmoeQ4) {
      DecodeSmoeGroup<4>(codes + g * kGroupNibbles, scale, out);
    } else {
      DecodeSmoeGroup<2>(codes + g * kGroupCrumbs, scale, out);
    }
  }
}

void DecodeQ4tpRow(const Q4tpLayout& layout, size_t row, float* out) {
  float ladder[kLadderRungs];
  MakeLadder(layout.params + row * 4, ladder);
  const uint8_t* codes = layout.codes + row * layout.code_bytes;
  const uint8_t* nibbles = layout.nibbles + row * layout.groups_per_row * kGroupNibbles;
  for (size_t g = 0; g < layout.groups_per_row; ++g) {
    DecodeGroup(nibbles + g * kGroupNibbles, ladder[LadderCode(codes, g)], out + g * kGroup);
  }
}

void DecodeRowsImpl(const Matrix& w, uint32_t row_begin, uint32_t row_end, float* out) {
  const size_t cols = w.cols;
  const size_t groups = cols / kGroup;
  const size_t first = size_t{row_begin} * cols;
  const size_t count = size_t{row_end - row_begin} * cols;
  switch (w.dtype) {
    case DType::kF32:
      std::memcpy(out, w.bytes.data() + first * 4, count * 4);
      return;
    case DType::kF16:
      return ToFloats<StoredF16>(w.bytes.data() + first * 2, count, out);
    case DType::kBf16:
      return ToFloats<StoredBf16>(w.bytes.data() + first * 2, count, out);
    case DType::kQ8Row:
    case DType::kQ82f:
      for (size_t row = row_begin; row < row_end; ++row, out += cols) {
        DecodeQ8(Q8Layout(w), row, cols, out);
      }
      return;
    case DType::kQ4Block: {
      if (cols % kGroup != 0) break;
      const Q4BlockLayout layout(w);
      for (size_t g = row_begin * groups; g < row_end * groups; ++g, out += kGroup) {
        DecodeGroup(layout.nibbles + g * kGroupNibbles, LoadF16(layout.scales + g * 2), out);
      }
      return;
    }
    case DType::kQ4Tiled:
      for (size_t g = row_begin * groups; g < row_end * groups; ++g, out += kGroup) {
        const uint8_t* tile = w.bytes.data() + g * kTileBytes;
        DecodeGroup(tile + 2, LoadF16(tile), out);
      }
      return;
    case DType::kQ4tp:
      for (size_t row = row_begin; row < row_end; ++row, out += cols) {
        DecodeQ4tpRow(Q4tpLayout(w), row, out);
      }
      return;
    case DType::kSmoeQ4:
    case DType::kSmoeQ2:
      if (cols % kSmoeGroup != 0) break;
      for (size_t row = row_begin; row < row_end; ++row, out += cols) DecodeSmoeRow(w, row, out);
      return;
    default:
      break;
  }
  reference::DecodeRows(w, row_begin, row_end, out);
}

// ---- products ----

constexpr size_t kTileTokens = 3;  // 12 accumulators, 3 activations, 1 weight: AVX2's 16 registers

template <class Stored, size_t T>
HWY_INLINE void StoreTile(const uint8_t* const* rows, const float* const* x, size_t cols,
                          size_t live, float* const* y, size_t row) {
  float out[T][kTileRows];
  DotTile<Stored, kTileRows, T>(rows, x, cols, out);
  for (size_t t = 0; t < T; ++t) {
    for (size_t r = 0; r < live; ++r) y[t][row + r] = out[t][r];
  }
}

// Four stored rows, of which `live` count, times all tokens.
template <class Stored>
void RowsTimesTokens(const uint8_t* const* rows, const uint8_t* const* x, size_t n, size_t cols,
                     size_t live, float* const* y, size_t row) {
  size_t t = 0;
  const float* xs[kTileTokens];
  for (; t < n; t += kTileTokens) {
    const size_t count = std::min(kTileTokens, n - t);
    for (size_t i = 0; i < count; ++i) xs[i] = reinterpret_cast<const float*>(x[t + i]);
    if (count == 3) StoreTile<Stored, 3>(rows, xs, cols, live, y + t, row);
    if (count == 2) StoreTile<Stored, 2>(rows, xs, cols, live, y + t, row);
    if (count == 1) StoreTile<Stored, 1>(rows, xs, cols, live, y + t, row);
  }
}

// Stored rows times one token. They come from memory and are read once: one row after the other is
// a stream that the CPU follows by itself, four side by side are not (see experiments.md).
template <class Stored>
void RowsTimesToken(const uint8_t* rows, const uint8_t* x, size_t count, size_t cols, float* y) {
  const auto* floats = reinterpret_cast<const float*>(x);
  for (size_t row = 0; row < count; ++row) {
    const uint8_t* at = rows + row * cols * Stored::kBytes;
    float out[1][1];
    DotTile<Stored, 1, 1>(&at, &floats, cols, out);
    y[row] = out[0][0];
  }
}

void FloatProductImpl(const Matrix& w, uint32_t row_begin, uint32_t row_end,
                      const uint8_t* const* x, size_t n, float* const* y, float* scratch) {
  // Halves are converted again for every tile of tokens unless that is more work than storing them.
  const bool direct = w.dtype == DType::kF32 ||
                      ((w.dtype == DType::kF16 || w.dtype == DType::kBf16) && n <= kTileTokens);
  const size_t cols = w.cols;
  const size_t row_bytes = cols * (direct && w.dtype != DType::kF32 ? 2 : 4);
  if (direct && n == 1) {
    const uint8_t* rows = w.bytes.data() + row_begin * row_bytes;
    const size_t count = row_end - row_begin;
    if (w.dtype == DType::kF16) return RowsTimesToken<StoredF16>(rows, x[0], count, cols, y[0]);
    if (w.dtype == DType::kBf16) return RowsTimesToken<StoredBf16>(rows, x[0], count, cols, y[0]);
    return RowsTimesToken<StoredF32>(rows, x[0], count, cols, y[0]);
  }
  for (uint32_t row = row_begin; row < row_end; row += kTileRows) {
    const uint32_t live = std::min<uint32_t>(kTileRows, row_end - row);
    const uint8_t* base = w.bytes.data() + row * row_bytes;
    if (!direct) {
      DecodeRowsImpl(w, row, row + live, scratch);
      base = reinterpret_cast<const uint8_t*>(scratch);
    }
    const uint8_t* rows[kTileRows];
    for (uint32_t r = 0; r < kTileRows; ++r) rows[r] = base + std::min(r, live - 1) * row_bytes;
    const size_t out = row - row_begin;
    if (direct && w.dtype == DType::kF16) {
      RowsTimesTokens<StoredF16>(rows, x, n, cols, live, y, out);
    } else if (direct && w.dtype == DType::kBf16) {
      RowsTimesTokens<StoredBf16>(rows, x, n, cols, live, y, out);
    } else {
      RowsTimesTokens<StoredF32>(rows, x, n, cols, live, y, out);
    }
  }
}

}  // namespace moewe::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moewe::kernels {

HWY_EXPORT(DecodeRowsImpl);
HWY_EXPORT(FloatProductImpl);

size_t FloatScratchFloats(size_t cols) { return kTileRows * cols; }

void DecodeRows(const Matrix& w, uint32_t row_begin, uint32_t row_end, float* out) {
  if (ActiveIsa() == Isa::kScalar) return reference::DecodeRows(w, row_begin, row_end, out);
  HWY_DYNAMIC_DISPATCH(DecodeRowsImpl)(w, row_begin, row_end, out);
}

void FloatProduct(const Matrix& w, uint32_t row_begin, uint32_t row_end, const uint8_t* const* x,
                  size_t n, float* const* y, float* scratch) {
  if (ActiveIsa() != Isa::kScalar) {
    HWY_DYNAMIC_DISPATCH(FloatProductImpl)(w, row_begin, row_end, x, n, y, scratch);
    return;
  }
  for (uint32_t row = row_begin; row < row_end; ++row) {
    reference::DecodeRows(w, row, row + 1, scratch);
    for (size_t t = 0; t < n; ++t) {
      const auto* floats = reinterpret_cast<const float*>(x[t]);
      y[t][row - row_begin] = static_cast<float>(reference::Dot(scratch, floats, w.cols));
    }
  }
}

}  // namespace moewe::kernels
#endif  // HWY_ONCE
