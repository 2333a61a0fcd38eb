// What the codecs share: rounding, stored scales, unaligned f16 fields, and the parts of a Codec
// that follow from a fixed size. Only codec files include this.
//
// The rules behind the numbers are those of existing CMF writers: a stored scale is max(f16(x),
// 2^-14), quants are computed against the stored scale by f32 division, all rounding is
// ties-to-even.
#ifndef MOEWE_QUANT_LAYOUT_H_
#define MOEWE_QUANT_LAYOUT_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/byte_reader.h"
#include "base/f16.h"
#include "quant/codec.h"

namespace moewe::quant {

inline constexpr uint64_t kGroup = 32;         // weights that share a scale in the grouped layouts
inline constexpr uint64_t kGroupNibbles = 16;  // bytes of a group's 4-bit quants
inline constexpr uint64_t kScaleBytes = 2;     // a stored f16

inline uint16_t LoadU16(const uint8_t* p) {
  uint16_t value = 0;
  std::memcpy(&value, p, sizeof(value));
  return value;
}
inline void StoreU16(uint8_t* p, uint16_t value) { std::memcpy(p, &value, sizeof(value)); }
inline float LoadF16(const uint8_t* p) { return F16ToF32(LoadU16(p)); }

// The bits of the scale that is stored for x: f16, at least 2^-14 (the least normal half).
inline uint16_t StoredScaleBits(float x) {
  constexpr uint16_t kLeast = 0x0400;
  const uint16_t bits = F32ToF16(x);
  return F16ToF32(bits) >= 0x1p-14f ? bits : kLeast;
}

// x rounded to the nearest integer, ties to even, kept in [lo, hi]; NaN gives 0 in its low byte.
// Adding 1.5 * 2^23 leaves the integer in the low mantissa bits, which vectorizes on every CPU.
inline int32_t RoundClamped(float x, float lo, float hi) {
  constexpr float kMagic = 12582912.0f;
  const float clamped = std::min(std::max(x, lo), hi);  // NaN passes through in this argument order
  return static_cast<int32_t>(std::bit_cast<uint32_t>(clamped + kMagic) -
                              std::bit_cast<uint32_t>(kMagic));
}

// The largest magnitude; NaN is passed over.
inline float AbsMax(const float* values, uint64_t n) {
  float largest = 0.0f;
  for (uint64_t i = 0; i < n; ++i) {
    const float magnitude = std::fabs(values[i]);
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

// 4-bit quants: element 2k in the low nibble, 2k + 1 in the high one, value = (nibble - 8) * scale.
inline void DecodeNibbles(const uint8_t* nibbles, float scale, float* out) {
  for (uint64_t k = 0; k < kGroupNibbles; ++k) {
    out[2 * k] = static_cast<float>((nibbles[k] & 0xF) - 8) * scale;
    out[2 * k + 1] = static_cast<float>((nibbles[k] >> 4) - 8) * scale;
  }
}

inline uint8_t PackNibbles(int32_t low, int32_t high) {
  return static_cast<uint8_t>(((low + 8) & 0xF) | (((high + 8) & 0xF) << 4));
}

// One q4_block / q4_tiled group: scale of absmax / 7, quants against the stored scale.
inline uint16_t EncodeQ4Group(const float* values, uint8_t* nibbles) {
  const uint16_t bits = StoredScaleBits(AbsMax(values, kGroup) / 7.0f);
  const float scale = F16ToF32(bits);
  int32_t quants[kGroup];
  for (uint64_t i = 0; i < kGroup; ++i) quants[i] = RoundClamped(values[i] / scale, -8.0f, 7.0f);
  for (uint64_t k = 0; k < kGroupNibbles; ++k) {
    nibbles[k] = PackNibbles(quants[2 * k], quants[2 * k + 1]);
  }
  return bits;
}

// a * b + c where it fits 64 bits.
inline std::optional<uint64_t> CheckedMulAdd(std::optional<uint64_t> a, uint64_t b, uint64_t c) {
  if (!a) return std::nullopt;
  const std::optional<uint64_t> product = CheckedMul(*a, b);
  return product ? CheckedAdd(*product, c) : std::nullopt;
}

using SizeFunction = std::optional<uint64_t> (*)(MatrixShape);
using RowsFunction = void (*)(const float*, MatrixShape, uint64_t, uint64_t, uint8_t*);

[[noreturn]] void ThrowSizeMismatch(uint64_t stored, std::optional<uint64_t> expected,
                                    const Where& where);

// Codec::validate of a layout whose bytes are all meaningful and whose size the shape gives.
template <SizeFunction kSize>
void ValidateSize(Bytes bytes, MatrixShape shape, const Where& where) {
  const std::optional<uint64_t> expected = kSize(shape);
  if (!expected || *expected != bytes.size()) ThrowSizeMismatch(bytes.size(), expected, where);
}

// The encoding of a layout whose size follows from the shape and whose rows encode on their own.
template <SizeFunction kSize, RowsFunction kRows>
class RowWiseEncoding : public Encoding {
 public:
  RowWiseEncoding(MatrixShape shape, const EncodeOptions&) : shape_(shape) {}
  uint64_t size() const override { return kSize(shape_).value(); }
  void EncodeRows(const float* values, uint64_t row_begin, uint64_t row_end,
                  uint8_t* out) const override {
    kRows(values, shape_, row_begin, row_end, out);
  }

 private:
  MatrixShape shape_;
};

template <typename EncodingClass>
std::unique_ptr<Encoding> StartEncoding(MatrixShape shape, const EncodeOptions& options) {
  return std::make_unique<EncodingClass>(shape, options);
}

// Runs a fresh encoding over all of values, by this thread.
std::vector<uint8_t> Finish(Encoding& encoding, std::span<const float> values, uint64_t rows);

// Codec::encode by way of Codec::start.
template <typename EncodingClass>
void EncodeWhole(std::span<const float> values, MatrixShape shape, std::vector<uint8_t>* out) {
  EncodingClass encoding(shape, EncodeOptions{});
  *out = Finish(encoding, values, shape.rows);
}

using DecodeRowsFunction = void (*)(Bytes, MatrixShape, uint64_t, uint64_t, float*);

// The codec of a layout whose size follows from the shape and whose rows encode on their own.
template <SizeFunction kSize, DecodeRowsFunction kDecode, RowsFunction kEncode>
constexpr Codec RowWiseCodec(DType dtype, bool (*holds)(MatrixShape, size_t)) {
  return {.dtype = dtype,
          .holds = holds,
          .encoded_size = kSize,
          .validate = ValidateSize<kSize>,
          .decode_rows = kDecode,
          .encode = EncodeWhole<RowWiseEncoding<kSize, kEncode>>,
          .start = StartEncoding<RowWiseEncoding<kSize, kEncode>>};
}

// f16 and bf16: two bytes a value, which alone differ in what the bits mean.
template <float (*kToFloat)(uint16_t), uint16_t (*kFromFloat)(float)>
struct TwoByteFloats {
  static std::optional<uint64_t> Size(MatrixShape shape) {
    return CheckedMulAdd(CheckedMul(shape.rows, shape.cols), 2, 0);
  }
  static void DecodeRows(Bytes bytes, MatrixShape shape, uint64_t row_begin, uint64_t row_end,
                         float* out) {
    const uint8_t* stored = bytes.data() + row_begin * shape.cols * 2;
    const uint64_t count = (row_end - row_begin) * shape.cols;
    for (uint64_t i = 0; i < count; ++i) out[i] = kToFloat(LoadU16(stored + 2 * i));
  }
  static void EncodeRows(const float* values, MatrixShape shape, uint64_t row_begin,
                         uint64_t row_end, uint8_t* out) {
    uint8_t* stored = out + row_begin * shape.cols * 2;
    const uint64_t count = (row_end - row_begin) * shape.cols;
    for (uint64_t i = 0; i < count; ++i) StoreU16(stored + 2 * i, kFromFloat(values[i]));
  }
};

inline bool HoldsAnything(MatrixShape, size_t) { return true; }
inline bool HoldsMatrix(MatrixShape, size_t ndim) { return ndim == 2; }
inline bool HoldsGroupedMatrix(MatrixShape shape, size_t ndim) {
  return ndim == 2 && shape.cols % kGroup == 0;
}

}  // namespace moewe::quant

#endif  // MOEWE_QUANT_LAYOUT_H_
