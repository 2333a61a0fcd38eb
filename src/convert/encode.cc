#include "convert/encode.h"

#include <algorithm>

namespace moewe::convert {

std::vector<uint8_t> EncodeTensor(const formats::TensorView& tensor, DType dtype,
                                  ThreadPool& pool) {
  const quant::Codec* from = quant::FindCodec(tensor.dtype);
  const quant::Codec* to = quant::FindCodec(dtype);
  if (from == nullptr || to == nullptr || to->encode_rows == nullptr) {
    throw Error(ErrorCode::kUnsupported, "cannot convert from this dtype", {"", tensor.name, {}});
  }
  const quant::MatrixShape shape = tensor.matrix();
  from->validate(tensor.bytes, shape, {"", tensor.name, {}});
  std::vector<uint8_t> out(to->encoded_size(shape).value());
  // Each worker's decoded rows, allocated here because tasks must not throw.
  const uint64_t block_rows =
      to->add_column_block != nullptr ? quant::kColumnBlockRows : quant::kEncodeRowAlign;
  const uint64_t blocks = (shape.rows + block_rows - 1) / block_rows;
  const auto workers = static_cast<size_t>(pool.num_threads());
  std::vector<std::vector<float>> rows(
      workers, std::vector<float>(std::min(block_rows, shape.rows) * shape.cols));
  const auto decode = [&](size_t block, int worker) {
    float* values = rows[static_cast<size_t>(worker)].data();
    const uint64_t begin = block * block_rows;
    from->decode_rows(tensor.bytes, shape, begin, std::min(begin + block_rows, shape.rows), values);
    return values;
  };
  if (to->add_column_block != nullptr) {
    std::vector<double> sums(blocks * shape.cols);
    pool.Run(blocks, [&](size_t block, int worker) {
      const float* values = decode(block, worker);
      to->add_column_block(values, std::min(block_rows, shape.rows - block * block_rows),
                           shape.cols, sums.data() + block * shape.cols);
    });
    to->finish_columns(sums, shape, out.data());
  }
  pool.Run(blocks, [&](size_t block, int worker) {
    const float* values = decode(block, worker);
    const uint64_t begin = block * block_rows;
    to->encode_rows(values, shape, begin, std::min(begin + block_rows, shape.rows), out.data());
  });
  return out;
}

}  // namespace moewe::convert
