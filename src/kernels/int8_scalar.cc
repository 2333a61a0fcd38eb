// The scalar definition of the integer path, and the choice of kernels.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/int8.h"
#include "kernels/ladder.h"
#include "kernels/layout.h"

namespace moewe::kernels {
namespace {

void Quantize(const float* x, const uint8_t* col_field, size_t count, size_t group, size_t cols,
              Input input, uint8_t* row) {
  const size_t padded = PreparedRow::PaddedGroups(cols);
  const size_t end = group * kGroup + count >= cols ? padded : group + count / kGroup;
  for (size_t g = group; g < end; ++g) {
    const size_t first = (g - group) * kGroup;
    const size_t live = first < count ? std::min(kGroup, count - first) : 0;
    float values[kGroup] = {};
    uint32_t max_bits = 0;  // of magnitudes: NaN > infinity > finite
    for (size_t i = 0; i < live; ++i) {
      values[i] = x[first + i];
      if (col_field != nullptr) values[i] *= LoadF16(col_field + (first + i) * 2);
      max_bits = std::max(max_bits, std::bit_cast<uint32_t>(values[i]) & 0x7FFFFFFFu);
    }
    const auto amax = std::bit_cast<float>(max_bits);
    float dx = amax / 127.0f;
    float inverse = 127.0f / amax;
    if (max_bits >= 0x7F800000u) {
      dx = std::numeric_limits<float>::quiet_NaN();
      inverse = 0;
    } else if (amax < 1e-36f) {
      dx = inverse = 0;
    }
    int32_t sum = 0;
    for (size_t i = 0; i < kGroup; ++i) {
      const auto q =
          inverse == 0 ? int8_t{0} : static_cast<int8_t>(std::lrint(values[i] * inverse));
      row[g * kGroup + i] = static_cast<uint8_t>(q);
      sum += q;
    }
    if (input == Input::kPlain) {
      std::memcpy(row + padded * 32 + g * 4, &dx, 4);
      std::memcpy(row + padded * 48 + g * 4, &sum, 4);
      continue;
    }
    sum *= SumFactor(input);
    for (size_t copy = 0; copy < 4; ++copy) {
      std::memcpy(row + padded * 32 + (g * 4 + copy) * 4, &dx, 4);
      std::memcpy(row + padded * 48 + (g * 4 + copy) * 4, &sum, 4);
    }
  }
}

float Dx(const uint8_t* x, size_t padded, size_t g) {
  float dx;
  std::memcpy(&dx, x + padded * 32 + g * 16, 4);
  return dx;
}

// A row of 4-bit or 2-bit codes: its integer weights, and the scale of group g.
struct PackedRow {
  const uint8_t* codes;
  size_t stride;  // of groups
  uint32_t bits = 4;
  int32_t factor = 1;  // a weight is factor * code - offset
  int32_t offset = 8;
  const uint8_t* scales = nullptr;  // f16, scale_stride apart
  size_t scale_stride = 2;
  const uint8_t* pair_scales = nullptr;  // of vaults: one for two groups
  float unit = 1;
  const uint8_t* rungs = nullptr;
  float ladder[kLadderRungs];

  PackedRow(const Matrix& m, uint32_t row) {
    const size_t groups = m.cols / kGroup;
    if (m.dtype == DType::kSmoeQ4 || m.dtype == DType::kSmoeQ2) {
      const SmoeLayout layout(m);
      codes = layout.Codes(row);
      stride = m.dtype == DType::kSmoeQ4 ? kGroupNibbles : kGroupCrumbs;
      bits = m.dtype == DType::kSmoeQ4 ? 4 : 2;
      factor = 2;
      offset = m.dtype == DType::kSmoeQ4 ? 15 : 3;
      unit = m.dtype == DType::kSmoeQ4 ? kSmoeQ4Unit : kSmoeQ2Unit;
      pair_scales = layout.Scales(row);
    } else if (m.dtype == DType::kQ4Block) {
      const Q4BlockLayout layout(m);
      codes = layout.nibbles + row * groups * kGroupNibbles;
      stride = kGroupNibbles;
      scales = layout.scales + row * groups * 2;
    } else if (m.dtype == DType::kQ4Tiled) {
      scales = m.bytes.data() + row * groups * kTileBytes;
      scale_stride = stride = kTileBytes;
      codes = scales + 2;
    } else {
      const Q4tpLayout layout(m);
      codes = layout.nibbles + row * groups * kGroupNibbles;
      stride = kGroupNibbles;
      rungs = layout.codes + row * layout.code_bytes;
      MakeLadder(layout.params + size_t{row} * 4, ladder);
    }
  }
  float Scale(size_t g) const {
    if (pair_scales != nullptr) return LoadF16(pair_scales + g / 2 * 2) * unit;
    if (rungs == nullptr) return LoadF16(scales + g * scale_stride);
    return ladder[LadderCode(rungs, g)];
  }
  int32_t Weight(size_t g, size_t i) const {
    const uint32_t per_byte = 8 / bits;
    const uint32_t byte = codes[g * stride + i / per_byte];
    const uint32_t code = byte >> (i % per_byte * bits) & ((1u << bits) - 1);
    return factor * static_cast<int32_t>(code) - offset;
  }
};

void Packed(const Matrix& w, uint32_t row_begin, uint32_t row_end, const uint8_t* const* x,
            size_t n, float* const* y, float*, const NextRows&) {
  const size_t padded = PreparedRow::PaddedGroups(w.cols);
  for (uint32_t row = row_begin; row < row_end; ++row) {
    const PackedRow r(w, row);
    for (size_t t = 0; t < n; ++t) {
      float c[4] = {};
      for (size_t g = 0; g < w.cols / kGroup; ++g) {
        const auto* q = reinterpret_cast<const int8_t*>(x[t]) + g * kGroup;
        int32_t sum = 0;
        for (size_t i = 0; i < kGroup; ++i) sum += r.Weight(g, i) * q[i];
        c[g % 4] = std::fma(static_cast<float>(sum), r.Scale(g) * Dx(x[t], padded, g), c[g % 4]);
      }
      y[t][row - row_begin] = (c[0] + c[2]) + (c[1] + c[3]);
    }
  }
}

void BytesRows(const Matrix& w, uint32_t row_begin, uint32_t row_end, const uint8_t* const* x,
               size_t n, float* const* y, float*, const NextRows&) {
  const size_t padded = PreparedRow::PaddedGroups(w.cols);
  const Q8Layout layout(w);
  for (uint32_t row = row_begin; row < row_end; ++row) {
    const auto* weights = reinterpret_cast<const int8_t*>(layout.quants + size_t{row} * w.cols);
    for (size_t t = 0; t < n; ++t) {
      const auto* q = reinterpret_cast<const int8_t*>(x[t]);
      float c[4] = {};
      for (size_t g = 0; g * kGroup < w.cols; ++g) {
        int32_t sum = 0;
        for (size_t i = g * kGroup; i < std::min<size_t>(w.cols, (g + 1) * kGroup); ++i) {
          sum += weights[i] * q[i];
        }
        c[g % 4] = std::fma(static_cast<float>(sum), Dx(x[t], padded, g), c[g % 4]);
      }
      y[t][row - row_begin] =
          LoadF16(layout.row_scales + size_t{row} * 2) * ((c[0] + c[2]) + (c[1] + c[3]));
    }
  }
}

}  // namespace

const Int8Kernels kInt8Scalar = {Quantize, Packed, BytesRows, PlainScalar};

const Int8Kernels& Int8KernelsFor(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512Vnni) return kInt8Avx512;
  if (isa == Isa::kAvx2) return kInt8Avx2;
#endif
  (void)isa;
  return kInt8Scalar;
}

Input InputOf(const Matrix& m, Activations activations) {
  if (activations == Activations::kF32) return Input::kFloat;
  switch (m.dtype) {
    case DType::kQ8Row:
    case DType::kQ82f:
      return Input::kBytes;
    case DType::kQ4Tiled:
    case DType::kQ4tp:
      return Input::kNibbles;
    case DType::kQ4Block:
      // Groups that cross rows have no integer kernel.
      return m.cols % kGroup == 0 ? Input::kNibbles : Input::kFloat;
    case DType::kSmoeQ4:
      return m.cols % kSmoeGroup == 0 ? Input::kOddNibbles : Input::kFloat;
    case DType::kSmoeQ2:
      return m.cols % kSmoeGroup == 0 ? Input::kOddCrumbs : Input::kFloat;
    case DType::kVbit:
      return m.row_starts != nullptr ? Input::kPlain : Input::kFloat;
    case DType::kVbitRo:
    case DType::kQ1:
    case DType::kQ1s:
    case DType::kQ1t:
      return Input::kPlain;
    default:
      return Input::kFloat;
  }
}

const uint8_t* ColFieldOf(const Matrix& m) {
  return m.dtype == DType::kQ82f ? Q8Layout(m).col_field : nullptr;
}

size_t Int8ScratchFloats(size_t cols) {
  // Of a batch, on AVX-512: a group's scales and weights, as bytes, of 32 rows.
  return Int8ScalesFloats(cols) + PreparedRow::PaddedGroups(cols) * 32 * (1 + 8);
}

}  // namespace moewe::kernels
