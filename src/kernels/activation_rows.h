// The activation rows of one region, in the forms that its matrices want: each form is made once.
#ifndef MOEWE_KERNELS_ACTIVATION_ROWS_H_
#define MOEWE_KERNELS_ACTIVATION_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/aligned_buffer.h"
#include "kernels/int8.h"
#include "platform/thread_pool.h"

namespace moewe::kernels {

// Rows of x, `stride` floats apart: the first `num_rows`, or those that `indices` names.
struct FloatInput {
  const float* x = nullptr;
  size_t num_rows = 0;
  size_t stride = 0;
  const uint32_t* indices = nullptr;
};

class ActivationRows {
 public:
  void Clear();

  // Asks for the rows in the form that `w` wants; for Row().
  size_t Add(const Matrix& w, Input input, const FloatInput& rows);

  // Makes everything asked for, over the pool where that is worth a region.
  void Prepare(ThreadPool* pool);

  // A PreparedRow, or the floats themselves; the row-th of FloatInput::indices where it has them.
  const uint8_t* Row(size_t form, size_t row) const {
    const Form& f = forms_[form];
    return f.base + row * f.row_bytes;
  }

  bool HasIndices(size_t form) const { return forms_[form].rows.indices != nullptr; }

 private:
  struct Form {
    Input input;
    const uint8_t* col_field;
    size_t cols;
    FloatInput rows;
    size_t offset;    // into buffer_
    size_t rows_end;  // of all forms' rows to quantize so far
    const uint8_t* base;
    size_t row_bytes;
  };
  void QuantizeRow(const Form& form, size_t row) const;

  std::vector<Form> forms_;
  size_t num_rows_ = 0;  // to quantize
  size_t num_values_ = 0;
  size_t bytes_ = 0;
  AlignedBuffer<uint8_t> buffer_;
};

}  // namespace moewe::kernels

#endif  // MOEWE_KERNELS_ACTIVATION_ROWS_H_
