// f32: the values themselves, little-endian.
#include "quant/codecs.h"
#include "quant/layout.h"

namespace moewe::quant {
namespace {

std::optional<uint64_t> Size(MatrixShape shape) {
  return CheckedMulAdd(CheckedMul(shape.rows, shape.cols), 4, 0);
}

void DecodeRows(Bytes bytes, MatrixShape shape, uint64_t row_begin, uint64_t row_end, float* out) {
  const uint8_t* stored = bytes.data() + row_begin * shape.cols * 4;
  const uint64_t count = (row_end - row_begin) * shape.cols;
  if (count != 0) std::memcpy(out, stored, count * 4);
}

void EncodeRows(const float* values, MatrixShape shape, uint64_t row_begin, uint64_t row_end,
                uint8_t* out) {
  uint8_t* stored = out + row_begin * shape.cols * 4;
  const uint64_t count = (row_end - row_begin) * shape.cols;
  if (count != 0) std::memcpy(stored, values, count * 4);
}

}  // namespace

const Codec kF32Codec = RowWiseCodec<Size, DecodeRows, EncodeRows>(DType::kF32, HoldsAnything);

}  // namespace moewe::quant
