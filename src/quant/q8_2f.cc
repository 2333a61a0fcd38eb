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

void AddColumnBlock(const float* values, uint64_t num_rows, uint64_t cols, double* sums) {
  std::fill_n(sums, cols, 0.0);
  for (uint64_t row = 0; row < num_rows; ++row, values += cols) {
    for (uint64_t i = 0; i < cols; ++i) {
      sums[i] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
  }
}

void FinishColumns(std::span<const double> sums, MatrixShape shape, uint8_t* out) {
  for (uint64_t i = 0; i < shape.cols; ++i) {
    double sum = 0.0;
    for (uint64_t at = i; at < sums.size(); at += shape.cols) sum += sums[at];
    const double rms = std::sqrt(sum / static_cast<double>(shape.rows));
    StoreU16(out + FieldOffset(shape) + i * kScaleBytes,
             StoredScaleBits(std::max(static_cast<float>(rms), kLeast)));
  }
}

void EncodeRows(const float* values, MatrixShape shape, uint64_t row_begin, uint64_t row_end,
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

void Encode(std::span<const float> values, MatrixShape shape, std::vector<uint8_t>* out) {
  const uint64_t blocks = (shape.rows + kColumnBlockRows - 1) / kColumnBlockRows;
  std::vector<double> sums(blocks * shape.cols);
  for (uint64_t block = 0; block < blocks; ++block) {
    const uint64_t row = block * kColumnBlockRows;
    AddColumnBlock(values.data() + row * shape.cols, std::min(kColumnBlockRows, shape.rows - row),
                   shape.cols, sums.data() + block * shape.cols);
  }
  out->assign(Size(shape).value(), 0);
  FinishColumns(sums, shape, out->data());
  EncodeRows(values.data(), shape, 0, shape.rows, out->data());
}

}  // namespace

const Codec kQ82fCodec = {
    .dtype = DType::kQ82f,
    .holds = HoldsMatrix,
    .encoded_size = Size,
    .validate = ValidateSize<Size>,
    .decode_rows = DecodeRows,
    .encode = Encode,
    .encode_rows = EncodeRows,
    .add_column_block = AddColumnBlock,
    .finish_columns = FinishColumns,
};

}  // namespace moewe::quant
