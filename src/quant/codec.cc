#include "quant/codec.h"

#include <fmt/format.h>

#include <array>

#include "quant/codecs.h"
#include "quant/layout.h"

namespace moewe::quant {
namespace {

// One line a dtype, in on-disk id order.
constexpr std::array kCodecs = {
    &kF32Codec, &kF16Codec,  &kBf16Codec,    &kQ8RowCodec, &kQ4BlockCodec,
    &kU8Codec,  &kQ82fCodec, &kQ4TiledCodec, &kQ4tpCodec,
};

}  // namespace

std::optional<MatrixShape> AsMatrix(std::span<const uint64_t> shape) {
  MatrixShape matrix{1, shape.empty() ? 1 : shape.back()};
  for (size_t i = 0; i + 1 < shape.size(); ++i) {
    const std::optional<uint64_t> rows = CheckedMul(matrix.rows, shape[i]);
    if (!rows) return std::nullopt;
    matrix.rows = *rows;
  }
  if (!CheckedMul(matrix.rows, matrix.cols)) return std::nullopt;
  return matrix;
}

const Codec* FindCodec(DType dtype) {
  for (const Codec* codec : kCodecs) {
    if (codec->dtype == dtype) return codec;
  }
  return nullptr;
}

std::span<const Codec* const> AllCodecs() { return kCodecs; }

std::vector<float> Decode(DType dtype, Bytes bytes, MatrixShape shape, const Where& where) {
  const Codec* codec = FindCodec(dtype);
  if (codec == nullptr) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("dtype {} cannot be decoded yet", DTypeName(dtype)), where);
  }
  codec->validate(bytes, shape, where);
  std::vector<float> values(shape.rows * shape.cols);
  codec->decode_rows(bytes, shape, 0, shape.rows, values.data());
  return values;
}

void ThrowSizeMismatch(uint64_t stored, std::optional<uint64_t> expected, const Where& where) {
  if (!expected) throw Error(ErrorCode::kBounds, "the shape's size does not fit 64 bits", where);
  throw Error(ErrorCode::kBounds,
              fmt::format("{} bytes stored, the shape needs {}", stored, *expected), where);
}

}  // namespace moewe::quant
