#include "convert/encode.h"

#include <algorithm>
#include <memory>

namespace moewe::convert {

std::vector<uint8_t> EncodeTensor(const formats::TensorView& tensor, DType dtype,
                                  const quant::EncodeOptions& options, ThreadPool& pool) {
  const quant::Codec* from = quant::FindCodec(tensor.dtype);
  const quant::Codec* to = quant::FindCodec(dtype);
  if (from == nullptr || to == nullptr || to->start == nullptr) {
    throw Error(ErrorCode::kUnsupported, "cannot convert from this dtype", {"", tensor.name, {}});
  }
  const quant::MatrixShape shape = tensor.matrix();
  from->validate(tensor.bytes, shape, {"", tensor.name, {}});
  const std::unique_ptr<quant::Encoding> encoding = to->start(shape, options);
  // Each worker's decoded rows, allocated here because tasks must not throw.
  const uint64_t block_rows = encoding->scans() > 0 ? quant::kScanRows : quant::kEncodeRowAlign;
  const uint64_t blocks = (shape.rows + block_rows - 1) / block_rows;
  const auto workers = static_cast<size_t>(pool.num_threads());
  std::vector<std::vector<float>> rows(
      workers, std::vector<float>(std::min(block_rows, shape.rows) * shape.cols));
  // `use` gets every block of rows, decoded.
  const auto for_blocks = [&](const auto& use) {
    pool.Run(blocks, [&](size_t block, int worker) {
      float* values = rows[static_cast<size_t>(worker)].data();
      const uint64_t begin = block * block_rows;
      const uint64_t end = std::min(begin + block_rows, shape.rows);
      from->decode_rows(tensor.bytes, shape, begin, end, values);
      use(values, begin, end);
    });
  };
  for (int scan = 0; scan < encoding->scans(); ++scan) {
    for_blocks([&](const float* values, uint64_t begin, uint64_t end) {
      encoding->Scan(scan, values, begin, end);
    });
    encoding->EndScan(scan);
  }
  std::vector<uint8_t> out(encoding->size());
  encoding->Begin(out.data());
  for_blocks([&](const float* values, uint64_t begin, uint64_t end) {
    encoding->EncodeRows(values, begin, end, out.data());
  });
  return out;
}

}  // namespace moewe::convert
