// smoe_q4, smoe_q2: the two encodings of .smoe vaults. Groups of 64 over the flattened matrix (a
// group may span rows), the last one padded with zeros for its scale; [codes, lowest bits first,
// ceil(n * bits / 8) bytes][f16 scale a group]. Any shape.
//
// Q4: scale = absmax (1 for zeros), w = (code - 7.5) / 7.5 * scale. Q2: scale = the best of 64
// fractions of absmax, w = (code - 1.5) / 1.5 * scale. Neither has a level for zero. Codes are
// computed against the f32 scale, before it is rounded to f16. Byte for byte what the format's own
// writer makes (docs/formats/smoe.md).
#include <array>

#include "quant/codecs.h"
#include "quant/layout.h"

namespace moewe::quant {
namespace {

constexpr uint64_t kSmoeGroup = 64;

// f32 to f16 as IEEE rounds it; F32ToF16 differs in ties between subnormals.
uint16_t ScaleBits(float scale) {
  if (!(scale < 0x1p-14f)) return F32ToF16(scale);
  // In units of the least subnormal, exact in f32: adding 2^23 leaves the rounded integer.
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(scale * 0x1p24f + 0x1p23f) & 0x7FF);
}

// The code of w for a scale; levels lie at (code - half) / half for half = (2^bits - 1) / 2.
template <int kBits>
int32_t Code(float w, float scale) {
  constexpr float kHalf = ((1 << kBits) - 1) / 2.0f;
  return RoundClamped((w / scale) * kHalf + kHalf, 0.0f, (1 << kBits) - 1) & ((1 << kBits) - 1);
}

// 0.1 to 1 in 64 even steps, each rounded to f32.
std::array<float, kSmoeGroup> ScaleFractions() {
  std::array<float, kSmoeGroup> fractions{};
  constexpr double kStep = (1.0 - 0.1) / 63;
  for (size_t i = 0; i < fractions.size(); ++i) {
    fractions[i] = static_cast<float>(static_cast<double>(i) * kStep + 0.1);
  }
  fractions.back() = 1.0f;
  return fractions;
}

// The squared error of a 2-bit group, added up in eight running sums: the order decides between
// candidates that are nearly the same.
float SquaredError(const float* values, float scale) {
  constexpr float kThird2 = 2.0f / 3.0f;
  constexpr float kMagic = 12582912.0f;  // as in RoundClamped
  float sums[8] = {};
  for (uint64_t at = 0; at < kSmoeGroup; at += 8) {
    for (uint64_t k = 0; k < 8; ++k) {
      const float w = values[at + k];
      const float x = (w / scale) * 1.5f + 1.5f;
      const float code = (std::min(std::max(x, 0.0f), 3.0f) + kMagic) - kMagic;
      const float error = w - ((code - 1.5f) * kThird2) * scale;
      sums[k] += error * error;
    }
  }
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

template <int kBits>
float ChooseScale(const float* values) {
  const float largest = AbsMax(values, kSmoeGroup);
  const float magnitude = largest == 0.0f ? 1.0f : largest;
  if constexpr (kBits == 4) return magnitude;
  static const std::array<float, kSmoeGroup> kFractions = ScaleFractions();
  float best = magnitude * kFractions[0];
  float least = SquaredError(values, best);
  for (size_t i = 1; i < kFractions.size(); ++i) {
    const float scale = magnitude * kFractions[i];
    const float error = SquaredError(values, scale);
    if (error >= least) continue;
    best = scale;
    least = error;
  }
  return best;
}

template <int kBits>
struct Smoe {
  static constexpr uint64_t kPerByte = 8 / kBits;
  static constexpr uint64_t kLevels = 1 << kBits;

  static uint64_t PackedBytes(uint64_t n) { return n / kPerByte + (n % kPerByte != 0); }
  static uint64_t Groups(uint64_t n) { return n / kSmoeGroup + (n % kSmoeGroup != 0); }

  static std::optional<uint64_t> Size(MatrixShape shape) {
    const std::optional<uint64_t> n = CheckedMul(shape.rows, shape.cols);
    if (!n) return std::nullopt;
    return PackedBytes(*n) + Groups(*n) * kScaleBytes;  // less than n
  }

  static std::array<float, kLevels> MakeLevels() {
    constexpr float kHalf = (kLevels - 1) / 2.0f;
    std::array<float, kLevels> levels{};
    for (uint64_t code = 0; code < kLevels; ++code) {
      levels[code] = (static_cast<float>(code) - kHalf) / kHalf;
    }
    return levels;
  }

  static void DecodeRows(Bytes bytes, MatrixShape shape, uint64_t row_begin, uint64_t row_end,
                         float* out) {
    static const std::array<float, kLevels> kLevelValues = MakeLevels();
    const uint8_t* packed = bytes.data();
    const uint8_t* scales = packed + PackedBytes(shape.rows * shape.cols);
    const uint64_t begin = row_begin * shape.cols;
    const uint64_t end = row_end * shape.cols;
    for (uint64_t i = begin; i < end;) {
      const uint64_t group = i / kSmoeGroup;
      const uint64_t stop = std::min(end, (group + 1) * kSmoeGroup);
      float levels[kLevels];
      const float scale = LoadF16(scales + group * kScaleBytes);
      for (uint64_t code = 0; code < kLevels; ++code) levels[code] = kLevelValues[code] * scale;
      for (; i < stop; ++i) {
        *out++ = levels[packed[i / kPerByte] >> (i % kPerByte * kBits) & (kLevels - 1)];
      }
    }
  }

  // row_begin * cols is a multiple of the group because row_begin is a multiple of kEncodeRowAlign.
  static void EncodeRows(const float* values, MatrixShape shape, uint64_t row_begin,
                         uint64_t row_end, uint8_t* out) {
    uint8_t* scales = out + PackedBytes(shape.rows * shape.cols);
    const uint64_t first = row_begin * shape.cols;
    const uint64_t count = (row_end - row_begin) * shape.cols;
    for (uint64_t at = 0; at < count; at += kSmoeGroup) {
      float padded[kSmoeGroup] = {};
      const uint64_t used = std::min(kSmoeGroup, count - at);
      std::copy_n(values + at, used, padded);
      const float scale = ChooseScale<kBits>(padded);
      StoreU16(scales + (first + at) / kSmoeGroup * kScaleBytes, ScaleBits(scale));
      uint8_t* packed = out + (first + at) / kPerByte;
      for (uint64_t i = 0; i < used; i += kPerByte) {
        int32_t byte = 0;
        for (uint64_t k = 0; k < kPerByte && i + k < used; ++k) {
          byte |= Code<kBits>(padded[i + k], scale) << (k * kBits);
        }
        packed[i / kPerByte] = static_cast<uint8_t>(byte);
      }
    }
  }
};

}  // namespace

const Codec kSmoeQ4Codec = RowWiseCodec<Smoe<4>::Size, Smoe<4>::DecodeRows, Smoe<4>::EncodeRows>(
    DType::kSmoeQ4, HoldsAnything);
const Codec kSmoeQ2Codec = RowWiseCodec<Smoe<2>::Size, Smoe<2>::DecodeRows, Smoe<2>::EncodeRows>(
    DType::kSmoeQ2, HoldsAnything);

}  // namespace moewe::quant
