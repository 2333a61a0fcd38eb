// f16: IEEE binary16. Norms and vectors of quantized files are stored so.
#include "quant/codecs.h"
#include "quant/layout.h"

namespace moewe::quant {
namespace {

std::optional<uint64_t> Size(MatrixShape shape) {
  return CheckedMulAdd(CheckedMul(shape.rows, shape.cols), 2, 0);
}

void DecodeRows(Bytes bytes, MatrixShape shape, uint64_t row_begin, uint64_t row_end, float* out) {
  const uint8_t* stored = bytes.data() + row_begin * shape.cols * 2;
  const uint64_t count = (row_end - row_begin) * shape.cols;
  for (uint64_t i = 0; i < count; ++i) out[i] = LoadF16(stored + 2 * i);
}

void EncodeRows(const float* values, MatrixShape shape, uint64_t row_begin, uint64_t row_end,
                uint8_t* out) {
  uint8_t* stored = out + row_begin * shape.cols * 2;
  const uint64_t count = (row_end - row_begin) * shape.cols;
  for (uint64_t i = 0; i < count; ++i) StoreU16(stored + 2 * i, F32ToF16(values[i]));
}

}  // namespace

const Codec kF16Codec = {
    .dtype = DType::kF16,
    .holds = HoldsAnything,
    .encoded_size = Size,
    .validate = ValidateSize<Size>,
    .decode_rows = DecodeRows,
    .encode = EncodeWhole<Size, EncodeRows>,
    .encode_rows = EncodeRows,
    .add_column_block = nullptr,
    .finish_columns = nullptr,
};

}  // namespace moewe::quant
