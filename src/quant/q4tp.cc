// q4tp: 4-bit tiles whose scale is a 5-bit rung on a ladder that each row has.
//
//   [nibbles: rows*groups*16][row: f16 lo, f16 step][codes: rows * ceil(groups*5/8), 5-bit
//   LSB-first]
//
// with groups = cols / 32. A tile's scale is ladder[code], ladder[0] = 2^lo, ladder[c] =
// ladder[c-1] * 2^step in f32: the running product is the definition (2^(lo + c*step) differs in
// the last bits), and both powers are correctly rounded, so they are computed in f64.
#include <array>

#include "quant/codecs.h"
#include "quant/layout.h"

namespace moewe::quant {
namespace {

constexpr uint64_t kRungs = 32;
constexpr uint64_t kRowParamBytes = 2 * kScaleBytes;
using Ladder = std::array<float, kRungs>;

struct Layout {
  uint64_t groups;      // tiles a row
  uint64_t code_bytes;  // a row's codes
  uint64_t params;      // offset of the row parameters
  uint64_t codes;       // offset of the codes

  explicit Layout(MatrixShape shape)
      : groups(shape.cols / kGroup),
        code_bytes((groups * 5 + 7) / 8),
        params(shape.rows * groups * kGroupNibbles),
        codes(params + shape.rows * kRowParamBytes) {}
};

std::optional<uint64_t> Size(MatrixShape shape) {
  if (shape.cols % kGroup != 0 || !CheckedMul(shape.rows, shape.cols)) return std::nullopt;
  const uint64_t groups = shape.cols / kGroup;  // <= 2^59: the next line cannot wrap
  const uint64_t code_bytes = groups / 8 * 5 + (groups % 8 * 5 + 7) / 8;
  const std::optional<uint64_t> row = CheckedMulAdd(groups, kGroupNibbles, kRowParamBytes);
  return row ? CheckedMulAdd(CheckedAdd(*row, code_bytes), shape.rows, 0) : std::nullopt;
}

Ladder ExpandLadder(uint16_t lo, uint16_t step) {
  Ladder ladder;
  ladder[0] = static_cast<float>(std::exp2(static_cast<double>(F16ToF32(lo))));
  const auto ratio = static_cast<float>(std::exp2(static_cast<double>(F16ToF32(step))));
  for (size_t c = 1; c < kRungs; ++c) ladder[c] = ladder[c - 1] * ratio;
  return ladder;
}

uint32_t LoadCode(const uint8_t* codes, uint64_t group) {
  const uint64_t bit = group * 5;
  uint32_t window = codes[bit / 8];
  if (bit % 8 > 3) window |= uint32_t{codes[bit / 8 + 1]} << 8;  // the code crosses a byte
  return (window >> (bit % 8)) & 31u;
}

void StoreCode(uint8_t* codes, uint64_t group, uint32_t code) {
  const uint64_t bit = group * 5;
  const uint32_t window = code << (bit % 8);
  codes[bit / 8] = static_cast<uint8_t>(codes[bit / 8] | (window & 0xFF));
  if (bit % 8 > 3) codes[bit / 8 + 1] = static_cast<uint8_t>(window >> 8);
}

void DecodeRows(Bytes bytes, MatrixShape shape, uint64_t row_begin, uint64_t row_end, float* out) {
  const Layout layout(shape);
  for (uint64_t row = row_begin; row < row_end; ++row) {
    const uint8_t* params = bytes.data() + layout.params + row * kRowParamBytes;
    const Ladder ladder = ExpandLadder(LoadU16(params), LoadU16(params + kScaleBytes));
    const uint8_t* nibbles = bytes.data() + row * layout.groups * kGroupNibbles;
    const uint8_t* codes = bytes.data() + layout.codes + row * layout.code_bytes;
    for (uint64_t g = 0; g < layout.groups; ++g, out += kGroup) {
      DecodeNibbles(nibbles + g * kGroupNibbles, ladder[LoadCode(codes, g)], out);
    }
  }
}

struct RowParams {
  uint16_t lo = 0;
  uint16_t step = 0;
};

// The least ladder that reaches from the row's smallest to its largest live scale, after rounding.
// `logs` holds log2 of each tile's scale; dead tiles (all zero) do not count unless all are dead.
RowParams FitLadder(std::span<const float> logs, std::span<const uint8_t> dead) {
  float lo = logs[0];
  float hi = logs[0];
  bool any = false;
  for (size_t g = 0; g < logs.size(); ++g) {
    if (dead[g]) continue;
    lo = any ? std::min(lo, logs[g]) : logs[g];
    hi = any ? std::max(hi, logs[g]) : logs[g];
    any = true;
  }
  RowParams params;
  params.lo = F32ToF16(lo);
  const float base = F16ToF32(params.lo);
  params.step = F32ToF16(std::max(hi - base, 0.0f) / 31.0f);
  for (int bump = 0; bump < 64; ++bump) {  // rounding may have made it too short, or zero
    const float step = F16ToF32(params.step);
    if (step > 0.0f && base + 31.0f * step >= hi) break;
    ++params.step;
  }
  return params;
}

// Quants of one tile against `scale`; returns the squared error, summed in order in f32.
float QuantizeTile(const float* values, float scale, int32_t* quants) {
  const float inverse = 1.0f / scale;
  float squares[kGroup];
  for (uint64_t i = 0; i < kGroup; ++i) {
    quants[i] = RoundClamped(values[i] * inverse, -8.0f, 7.0f);
    const float miss = values[i] - static_cast<float>(quants[i]) * scale;
    squares[i] = miss * miss;
  }
  float error = 0.0f;
  for (const float square : squares) error += square;
  return error;
}

// The rung near the nominal one whose quants miss the tile least; the first wins a tie. Without
// `search` the nominal one.
uint32_t EncodeTile(const float* values, const Ladder& ladder, int32_t nominal, bool search,
                    uint8_t* nibbles) {
  int32_t best[kGroup];
  int32_t trial[kGroup];
  float best_error = 0.0f;
  int32_t best_code = -1;
  const int32_t first = search ? std::max(nominal - 2, 0) : nominal;
  const int32_t last = search ? std::min(nominal + 1, 31) : nominal;
  for (int32_t code = first; code <= last; ++code) {
    const float error = QuantizeTile(values, ladder[static_cast<size_t>(code)], trial);
    if (best_code >= 0 && !(error < best_error)) continue;
    best_code = code;
    best_error = error;
    std::copy_n(trial, kGroup, best);
  }
  for (uint64_t k = 0; k < kGroupNibbles; ++k) {
    nibbles[k] = PackNibbles(best[2 * k], best[2 * k + 1]);
  }
  return static_cast<uint32_t>(best_code);
}

template <bool kSearch>
void EncodeRows(const float* values, MatrixShape shape, uint64_t row_begin, uint64_t row_end,
                uint8_t* out) {
  const Layout layout(shape);
  if (layout.groups == 0) return;
  std::vector<float> logs(layout.groups);
  std::vector<uint8_t> dead(layout.groups);
  for (uint64_t row = row_begin; row < row_end; ++row, values += shape.cols) {
    for (uint64_t g = 0; g < layout.groups; ++g) {
      const float largest = AbsMax(values + g * kGroup, kGroup);
      const float scale = F16ToF32(StoredScaleBits(largest / 7.0f));
      logs[g] = static_cast<float>(std::log2(static_cast<double>(scale)));
      dead[g] = largest == 0.0f;
    }
    const RowParams params = FitLadder(logs, dead);
    uint8_t* stored = out + layout.params + row * kRowParamBytes;
    StoreU16(stored, params.lo);
    StoreU16(stored + kScaleBytes, params.step);
    const Ladder ladder = ExpandLadder(params.lo, params.step);
    const float lo = F16ToF32(params.lo);
    const float step = F16ToF32(params.step);
    uint8_t* nibbles = out + row * layout.groups * kGroupNibbles;
    uint8_t* codes = out + layout.codes + row * layout.code_bytes;
    std::fill_n(codes, layout.code_bytes, uint8_t{0});
    for (uint64_t g = 0; g < layout.groups; ++g) {
      uint32_t code = 0;
      if (dead[g]) {
        std::fill_n(nibbles + g * kGroupNibbles, kGroupNibbles, uint8_t{0x88});
      } else {
        const int32_t nominal = RoundClamped((logs[g] - lo) / step, 0.0f, 31.0f) & 31;
        code =
            EncodeTile(values + g * kGroup, ladder, nominal, kSearch, nibbles + g * kGroupNibbles);
      }
      StoreCode(codes, g, code);
    }
  }
}

using SearchingEncoding = RowWiseEncoding<Size, EncodeRows<true>>;
using NominalEncoding = RowWiseEncoding<Size, EncodeRows<false>>;

std::unique_ptr<Encoding> Start(MatrixShape shape, const EncodeOptions& options) {
  if (options.search_scales) return std::make_unique<SearchingEncoding>(shape, options);
  return std::make_unique<NominalEncoding>(shape, options);
}

}  // namespace

const Codec kQ4tpCodec = {
    .dtype = DType::kQ4tp,
    .holds = HoldsGroupedMatrix,
    .encoded_size = Size,
    .validate = ValidateSize<Size>,
    .decode_rows = DecodeRows,
    .encode = EncodeWhole<SearchingEncoding>,
    .start = Start,
};

}  // namespace moewe::quant
