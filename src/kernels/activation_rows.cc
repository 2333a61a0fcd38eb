#include "kernels/activation_rows.h"

#include <algorithm>

namespace moewe::kernels {
namespace {

// Fewer values are quantized sooner than a region is opened.
constexpr size_t kValuesWorthARegion = 16384;

}  // namespace

void ActivationRows::Clear() {
  forms_.clear();
  bytes_ = num_rows_ = num_values_ = 0;
}

size_t ActivationRows::Add(const Matrix& w, Input input, const FloatInput& rows) {
  const uint8_t* col_field = input == Input::kFloat ? nullptr : ColFieldOf(w);
  for (size_t i = 0; i < forms_.size(); ++i) {
    const Form& f = forms_[i];
    if (f.input == input && f.col_field == col_field && f.cols == w.cols && f.rows.x == rows.x &&
        f.rows.indices == rows.indices) {
      return i;
    }
  }
  Form form{input, col_field, w.cols, rows, bytes_, num_rows_, nullptr, 0};
  if (input == Input::kFloat) {
    form.base = reinterpret_cast<const uint8_t*>(rows.x);
    form.row_bytes = rows.stride * sizeof(float);
  } else {
    form.row_bytes = PreparedRow::Bytes(w.cols);
    bytes_ += rows.num_rows * form.row_bytes;
    num_rows_ += rows.num_rows;
    num_values_ += rows.num_rows * w.cols;
    form.rows_end = num_rows_;
  }
  forms_.push_back(form);
  return forms_.size() - 1;
}

void ActivationRows::QuantizeRow(const Form& f, size_t row) const {
  const size_t source = f.rows.indices == nullptr ? row : f.rows.indices[row];
  Int8KernelsFor(ActiveIsa())
      .quantize(f.rows.x + source * f.rows.stride, f.col_field, f.cols, 0, f.cols, f.input,
                buffer_.data() + f.offset + row * f.row_bytes);
}

void ActivationRows::Prepare(ThreadPool* pool) {
  uint8_t* base = buffer_.Need(bytes_);
  for (Form& f : forms_) {
    if (f.input != Input::kFloat) f.base = base + f.offset;
  }
  const auto quantize = [this](size_t i, int) {
    const auto f = std::upper_bound(forms_.begin(), forms_.end(), i,
                                    [](size_t n, const Form& g) { return n < g.rows_end; });
    QuantizeRow(*f, i - (f->rows_end - f->rows.num_rows));
  };
  if (num_values_ < kValuesWorthARegion) {
    for (size_t i = 0; i < num_rows_; ++i) quantize(i, 0);
  } else {
    pool->Run(num_rows_, quantize);
  }
}

}  // namespace moewe::kernels
