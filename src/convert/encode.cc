#include "convert/encode.h"

#include <algorithm>
#include <memory>

#include "moewe/error.h"

namespace moewe::convert {
namespace {

// Decodes a tensor by blocks of rows on the pool.
class BlockDecoder {
 public:
  BlockDecoder(const formats::TensorView& tensor, uint64_t block_rows, ThreadPool& pool)
      : codec_(*quant::FindCodec(tensor.dtype)),
        bytes_(tensor.bytes),
        shape_(tensor.matrix()),
        block_rows_(block_rows),
        pool_(pool),
        // Allocated here because tasks must not throw.
        rows_(static_cast<size_t>(pool.num_threads()),
              std::vector<float>(std::min(block_rows, shape_.rows) * shape_.cols)) {}

  // use(values, row_begin, row_end) for every block.
  template <typename Use>
  void ForBlocks(const Use& use) {
    pool_.Run((shape_.rows + block_rows_ - 1) / block_rows_, [&](size_t block, int worker) {
      float* values = rows_[static_cast<size_t>(worker)].data();
      const uint64_t begin = block * block_rows_;
      const uint64_t end = std::min(begin + block_rows_, shape_.rows);
      codec_.decode_rows(bytes_, shape_, begin, end, values);
      use(values, begin, end);
    });
  }

 private:
  const quant::Codec& codec_;
  Bytes bytes_;
  quant::MatrixShape shape_;
  uint64_t block_rows_;
  ThreadPool& pool_;
  std::vector<std::vector<float>> rows_;  // of the block that each worker is at
};

// An encoding that has scanned all rows and knows its size.
std::unique_ptr<quant::Encoding> Scan(const formats::TensorView& tensor, DType dtype,
                                      const quant::EncodeOptions& options, ThreadPool& pool,
                                      const Where& where) {
  const quant::Codec* from = quant::FindCodec(tensor.dtype);
  const quant::Codec* to = quant::FindCodec(dtype);
  if (from == nullptr || to == nullptr || to->start == nullptr) {
    throw Error(ErrorCode::kUnsupported, "cannot convert from this dtype", where);
  }
  from->validate(tensor.bytes, tensor.matrix(), where);
  std::unique_ptr<quant::Encoding> encoding = to->start(tensor.matrix(), options);
  if (encoding->scans() == 0) return encoding;
  BlockDecoder blocks(tensor, quant::kScanRows, pool);
  for (int scan = 0; scan < encoding->scans(); ++scan) {
    blocks.ForBlocks([&](const float* values, uint64_t begin, uint64_t end) {
      encoding->Scan(scan, values, begin, end);
    });
    encoding->EndScan(scan);
  }
  return encoding;
}

}  // namespace

uint64_t EncodedSize(const formats::TensorView& tensor, DType dtype,
                     const quant::EncodeOptions& options, ThreadPool& pool, const Where& where) {
  return Scan(tensor, dtype, options, pool, where)->size();
}

std::vector<uint8_t> EncodeTensor(const formats::TensorView& tensor, DType dtype,
                                  const quant::EncodeOptions& options, ThreadPool& pool,
                                  const Where& where) {
  const std::unique_ptr<quant::Encoding> encoding = Scan(tensor, dtype, options, pool, where);
  std::vector<uint8_t> out(encoding->size());
  encoding->Begin(out.data());
  BlockDecoder blocks(tensor, quant::kEncodeRowAlign, pool);
  blocks.ForBlocks([&](const float* values, uint64_t begin, uint64_t end) {
    encoding->EncodeRows(values, begin, end, out.data());
  });
  return out;
}

}  // namespace moewe::convert
