// q8_2f: [int8 rows*cols][f16 scale: rows][f16 field: cols]; w = q * scale[row] * field[col].
//
// The field is the root mean square of each column (f64 sums in row order, blocks of 256 rows
// summed apart and then in order); the scale is that of the row divided by the field.
#include "quant/codecs.h"
#include "quant/layout.h"

namespace moewe::quant {
namespace {

constexpr float kLeast = 1e-12f;

std::optional<uint64_t> Size(MatrixShape shape) {
  const std::optional<uint64_t> quants = CheckedMul(shape.rows, shape.cols);
  const std::optional<uint64_t> fields = CheckedAdd(shape.rows, shape.cols);
  const std::optional<uint64_t> field_bytes = fields ? CheckedMul(*fields, kScaleBytes) : fields;
  return quants && field_bytes ? CheckedAdd(*quants, *field_bytes) : std::nullopt;
}

uint64_t FieldOffset(MatrixShape shape) {
  return shape.rows * shape.cols + shape.rows * kScaleBytes;
}

std::vector<float> LoadField(const uint8_t* stored, MatrixShape shape) {
  std::vector<float> field(shape.cols);
  for (uint64_t i = 0; i < shape.cols; ++i) {
    field[i] = LoadF16(stored + FieldOffset(shape) + i * kScaleBytes);
  }
  return field;
}

void DecodeRows(Bytes bytes, MatrixShape shape, uint64_t row_begin, uint64_t row_end, float* out) {
  const std::vector<float> field = LoadField(bytes.data(), shape);
  const uint8_t* scales = bytes.data() + shape.rows * shape.cols;
  for (uint64_t row = row_begin; row < row_end; ++row, out += shape.cols) {
    const float scale = LoadF16(scales + row * kScaleBytes);
    const uint8_t* quants = bytes.data() + row * shape.cols;
    for (uint64_t i = 0; i < shape.cols; ++i) {
      out[i] = static_cast<float>(static_cast<int8_t>(quants[i])) * scale * field[i];
    }
  }
}

void EncodeRowRange(const float* values, MatrixShape shape, uint64_t row_begin, uint64_t row_end,
                    uint8_t* out) {
  const std::vector<float> field = LoadField(out, shape);
  std::vector<float> scaled(shape.cols);
  uint8_t* scales = out + shape.rows * shape.cols;
  for (uint64_t row = row_begin; row < row_end; ++row, values += shape.cols) {
    for (uint64_t i = 0; i < shape.cols; ++i) scaled[i] = values[i] / field[i];
    const float largest = std::max(AbsMax(scaled.data(), shape.cols), kLeast);
    const uint16_t bits = StoredScaleBits(largest / 127.0f);
    const float scale = F16ToF32(bits);
    StoreU16(scales + row * kScaleBytes, bits);
    uint8_t* quants = out + row * shape.cols;
    for (uint64_t i = 0; i < shape.cols; ++i) {
      quants[i] = static_cast<uint8_t>(RoundClamped(scaled[i] / scale, -127.0f, 127.0f));
    }
  }
}

class Q82fEncoding : public Encoding {
 public:
  Q82fEncoding(MatrixShape shape, const EncodeOptions&)
      : shape_(shape), sums_((shape.rows + kScanRows - 1) / kScanRows * shape.cols) {}

  int scans() const override { return 1; }

  void Scan(int, const float* values, uint64_t row_begin, uint64_t row_end) override {
    for (uint64_t row = row_begin; row < row_end; ++row, values += shape_.cols) {
      double* sums = sums_.data() + row / kScanRows * shape_.cols;
      for (uint64_t i = 0; i < shape_.cols; ++i) {
        sums[i] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
      }
    }
  }

  uint64_t size() const override { return Size(shape_).value(); }

  void Begin(uint8_t* out) const override {
    for (uint64_t i = 0; i < shape_.cols; ++i) {
      double sum = 0.0;
      for (uint64_t at = i; at < sums_.size(); at += shape_.cols) sum += sums_[at];
      const double rms = std::sqrt(sum / static_cast<double>(shape_.rows));
      StoreU16(out + FieldOffset(shape_) + i * kScaleBytes,
               StoredScaleBits(std::max(static_cast<float>(rms), kLeast)));
    }
  }

  void EncodeRows(const float* values, uint64_t row_begin, uint64_t row_end,
                  uint8_t* out) const override {
    EncodeRowRange(values, shape_, row_begin, row_end, out);
  }

 private:
  MatrixShape shape_;
  std::vector<double> sums_;  // of squares: one row of columns a scan block
};

}  // namespace

const Codec kQ82fCodec = {
    .dtype = DType::kQ82f,
    .holds = HoldsMatrix,
    .encoded_size = Size,
    .validate = ValidateSize<Size>,
    .decode_rows = DecodeRows,
    .encode = EncodeWhole<Q82fEncoding>,
    .start = StartEncoding<Q82fEncoding>,
};

}  // namespace moewe::quant
