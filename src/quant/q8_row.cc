// q8_row: [int8 rows*cols][f16 scale: rows]; w = q * scale[row], scale = absmax(row) / 127.
#include "quant/codecs.h"
#include "quant/layout.h"

namespace moewe::quant {
namespace {

std::optional<uint64_t> Size(MatrixShape shape) {
  const std::optional<uint64_t> quants = CheckedMul(shape.rows, shape.cols);
  const std::optional<uint64_t> scales = CheckedMul(shape.rows, kScaleBytes);
  return quants && scales ? CheckedAdd(*quants, *scales) : std::nullopt;
}

void DecodeRows(Bytes bytes, MatrixShape shape, uint64_t row_begin, uint64_t row_end, float* out) {
  const uint8_t* scales = bytes.data() + shape.rows * shape.cols;
  for (uint64_t row = row_begin; row < row_end; ++row, out += shape.cols) {
    const float scale = LoadF16(scales + row * kScaleBytes);
    const uint8_t* quants = bytes.data() + row * shape.cols;
    for (uint64_t i = 0; i < shape.cols; ++i) {
      out[i] = static_cast<float>(static_cast<int8_t>(quants[i])) * scale;
    }
  }
}

void EncodeRows(const float* values, MatrixShape shape, uint64_t row_begin, uint64_t row_end,
                uint8_t* out) {
  uint8_t* scales = out + shape.rows * shape.cols;
  for (uint64_t row = row_begin; row < row_end; ++row, values += shape.cols) {
    const uint16_t bits = StoredScaleBits(AbsMax(values, shape.cols) / 127.0f);
    const float scale = F16ToF32(bits);
    StoreU16(scales + row * kScaleBytes, bits);
    uint8_t* quants = out + row * shape.cols;
    for (uint64_t i = 0; i < shape.cols; ++i) {
      quants[i] = static_cast<uint8_t>(RoundClamped(values[i] / scale, -128.0f, 127.0f));
    }
  }
}

}  // namespace

const Codec kQ8RowCodec = RowWiseCodec<Size, DecodeRows, EncodeRows>(DType::kQ8Row, HoldsMatrix);

}  // namespace moewe::quant
