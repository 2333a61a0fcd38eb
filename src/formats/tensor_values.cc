#include "formats/tensor_values.h"

namespace moewe::formats {

TensorValues::TensorValues(const TensorView& tensor)
    : codec_(quant::FindCodec(tensor.dtype)),
      is_fp8_(tensor.dtype == DType::kF8E4m3 && tensor.scales.block_rows != 0),
      bytes_(tensor.bytes),
      shape_(tensor.matrix()),
      scales_(tensor.scales) {}

void TensorValues::CheckLayout(const Where& where) const {
  if (is_fp8_) {
    quant::CheckFp8Layout(bytes_, shape_, scales_, where);
  } else {
    codec_->validate(bytes_, shape_, where);
  }
}

void TensorValues::Validate(const Where& where) const {
  CheckLayout(where);
  if (is_fp8_) quant::CheckFp8Values(bytes_, shape_, where);
}

void TensorValues::DecodeRows(uint64_t row_begin, uint64_t row_end, float* out) const {
  if (is_fp8_) {
    quant::DecodeFp8Rows(bytes_, shape_, scales_, row_begin, row_end, out);
  } else {
    codec_->decode_rows(bytes_, shape_, row_begin, row_end, out);
  }
}

std::vector<float> TensorValues::All(const Where& where) const {
  Validate(where);
  std::vector<float> values(shape_.rows * shape_.cols);
  DecodeRows(0, shape_.rows, values.data());
  return values;
}

}  // namespace moewe::formats
