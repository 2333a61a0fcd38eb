// The numbers of a tensor, whatever it is stored as: by its codec, or FP8 by the scales beside it.
#ifndef MOEWE_FORMATS_TENSOR_VALUES_H_
#define MOEWE_FORMATS_TENSOR_VALUES_H_

#include <cstdint>
#include <vector>

#include "base/byte_reader.h"
#include "formats/checkpoint.h"

namespace moewe::formats {

// A view of what `tensor` points to. All functions may be called from any thread.
class TensorValues {
 public:
  explicit TensorValues(const TensorView& tensor);

  // False for dtypes that moewe does not decode; nothing else may be called then.
  bool known() const { return codec_ != nullptr || is_fp8_; }

  // Throws Error{kBounds, kParse} at `where` unless decoding stays within the bytes.
  void CheckLayout(const Where& where) const;

  // The same, and that what is stored are numbers. Reads all bytes if only they can tell.
  void Validate(const Where& where) const;

  // Rows [row_begin, row_end) as f32 into out[(row_end - row_begin) * cols]. The layout is checked.
  void DecodeRows(uint64_t row_begin, uint64_t row_end, float* out) const;

  // All rows, validated.
  std::vector<float> All(const Where& where) const;

 private:
  const quant::Codec* codec_;
  bool is_fp8_;
  Bytes bytes_;
  quant::MatrixShape shape_;
  quant::BlockScales scales_;
};

}  // namespace moewe::formats

#endif  // MOEWE_FORMATS_TENSOR_VALUES_H_
