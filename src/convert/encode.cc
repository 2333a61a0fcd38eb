#include "convert/encode.h"

#include <memory>

#include "convert/block_decoder.h"
#include "formats/tensor_values.h"
#include "moewe/error.h"

namespace moewe::convert {
namespace {

// An encoding that has scanned all rows and knows its size.
std::unique_ptr<quant::Encoding> Scan(const formats::TensorView& tensor, DType dtype,
                                      const quant::EncodeOptions& options, ThreadPool& pool,
                                      const Where& where, const Selection& selection) {
  const formats::TensorValues from(tensor);
  const quant::Codec* to = quant::FindCodec(dtype);
  if (!from.known() || to == nullptr || to->start == nullptr) {
    throw Error(ErrorCode::kUnsupported, "cannot convert from this dtype", where);
  }
  from.Validate(where);
  std::unique_ptr<quant::Encoding> encoding = to->start(selection.Of(tensor.matrix()), options);
  if (encoding->scans() == 0) return encoding;
  BlockDecoder blocks(tensor, selection, quant::kScanRows, pool);
  for (int scan = 0; scan < encoding->scans(); ++scan) {
    blocks.ForBlocks([&](const float* values, uint64_t begin, uint64_t end, int /*worker*/) {
      encoding->Scan(scan, values, begin, end);
    });
    encoding->EndScan(scan);
  }
  return encoding;
}

}  // namespace

uint64_t EncodedSize(const formats::TensorView& tensor, DType dtype,
                     const quant::EncodeOptions& options, ThreadPool& pool, const Where& where,
                     const Selection& selection) {
  return Scan(tensor, dtype, options, pool, where, selection)->size();
}

std::vector<uint8_t> EncodeTensor(const formats::TensorView& tensor, DType dtype,
                                  const quant::EncodeOptions& options, ThreadPool& pool,
                                  const Where& where, const Selection& selection) {
  const std::unique_ptr<quant::Encoding> encoding =
      Scan(tensor, dtype, options, pool, where, selection);
  std::vector<uint8_t> out(encoding->size());
  encoding->Begin(out.data());
  BlockDecoder blocks(tensor, selection, quant::kEncodeRowAlign, pool);
  blocks.ForBlocks([&](const float* values, uint64_t begin, uint64_t end, int /*worker*/) {
    encoding->EncodeRows(values, begin, end, out.data());
  });
  return out;
}

}  // namespace moewe::convert
