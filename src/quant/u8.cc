// u8: opaque bytes (the configs of pipeline containers). They have no meaning as numbers; decoding
// gives the byte values so that every listed dtype can be inspected. moewe carries such tensors, it
// never makes them.
#include "quant/codecs.h"
#include "quant/layout.h"

namespace moewe::quant {
namespace {

std::optional<uint64_t> Size(MatrixShape shape) { return CheckedMul(shape.rows, shape.cols); }

void DecodeRows(Bytes bytes, MatrixShape shape, uint64_t row_begin, uint64_t row_end, float* out) {
  const Bytes stored = bytes.subspan(row_begin * shape.cols, (row_end - row_begin) * shape.cols);
  std::copy(stored.begin(), stored.end(), out);
}

}  // namespace

const Codec kU8Codec = {
    .dtype = DType::kU8,
    .holds = HoldsAnything,
    .encoded_size = Size,
    .validate = ValidateSize<Size>,
    .decode_rows = DecodeRows,
    .encode = nullptr,
    .start = nullptr,
};

}  // namespace moewe::quant
