#include "quant/codec.h"

#include <fmt/format.h>

#include <array>

#include "quant/codecs.h"
#include "quant/layout.h"

namespace moewe::quant {
namespace {

// In order of the ids.
constexpr std::array kCodecs = {
    &kF32Codec,  &kF16Codec,  &kBf16Codec,   &kQ8RowCodec,   &kQ4BlockCodec, &kU8Codec,
    &kVbitCodec, &kQ82fCodec, &kVbitRoCodec, &kQ4TiledCodec, &kQ1Codec,      &kQ1sCodec,
    &kQ1tCodec,  &kQ4tpCodec, &kSmoeQ4Codec, &kSmoeQ2Codec,
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

void Encoding::Scan(int, const float*, uint64_t, uint64_t) {}
void Encoding::EndScan(int) {}
void Encoding::Begin(uint8_t*) const {}

std::vector<uint8_t> Finish(Encoding& encoding, std::span<const float> values, uint64_t rows) {
  for (int scan = 0; scan < encoding.scans(); ++scan) {
    encoding.Scan(scan, values.data(), 0, rows);
    encoding.EndScan(scan);
  }
  std::vector<uint8_t> bytes(encoding.size());
  encoding.Begin(bytes.data());
  encoding.EncodeRows(values.data(), 0, rows, bytes.data());
  return bytes;
}

std::vector<uint8_t> Encode(const Codec& codec, std::span<const float> values, MatrixShape shape,
                            const EncodeOptions& options) {
  return Finish(*codec.start(shape, options), values, shape.rows);
}

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
