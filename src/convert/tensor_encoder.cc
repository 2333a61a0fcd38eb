#include "convert/tensor_encoder.h"

#include <fmt/format.h>

#include "convert/encode.h"
#include "convert/range_check.h"
#include "formats/made_bytes.h"

namespace moewe::convert {

std::string Describe(const EncodeChoices& choices) {
  const quant::EncodeOptions& options = choices.options;
  std::string text =
      fmt::format("mean_bits {} keep {} diffuse {} search_scales {}\n", options.mean_bits,
                  options.keep, options.diffuse, options.search_scales);
  for (const auto& [layer, counts] : choices.route_counts) {
    text += fmt::format("layer {}: {}\n", layer, fmt::join(counts, " "));
  }
  return text;
}

TensorEncoder::TensorEncoder(const formats::Checkpoint& source, const ConvertPlan& plan,
                             const EncodeChoices& choices, ThreadPool& pool)
    : source_(source),
      plan_(plan),
      options_(choices.options),
      budget_(plan, choices.route_counts, choices.options.mean_bits, pool),
      pool_(pool) {}

Where TensorEncoder::WhereOf(size_t index) const {
  const formats::TensorView& tensor = plan_.tensors[index].source;
  return {source_.files()[tensor.file_index], tensor.name, tensor.file_offset};
}

quant::EncodeOptions TensorEncoder::OptionsOf(size_t index) {
  quant::EncodeOptions options = options_;
  options.row_bits = budget_.WidthsOf(index);
  return options;
}

std::vector<uint8_t> TensorEncoder::Encode(size_t index) {
  const PlannedTensor& planned = plan_.tensors[index];
  const Where where = WhereOf(index);
  const formats::HeldBytes held(planned.source);
  if (planned.gathered()) return Gather(planned.source, planned.selection, where).value();
  std::vector<uint8_t> encoded = EncodeTensor(planned.source, planned.dtype, OptionsOf(index),
                                              pool_, where, planned.selection);
  CheckRange(planned.source, planned.dtype, encoded, pool_, where, planned.selection);
  return encoded;
}

uint64_t TensorEncoder::Size(size_t index) {
  const PlannedTensor& planned = plan_.tensors[index];
  if (planned.nbytes) return *planned.nbytes;
  const Where where = WhereOf(index);
  const formats::HeldBytes held(planned.source);
  if (planned.gathered()) return Gather(planned.source, planned.selection, where)->size();
  return EncodedSize(planned.source, planned.dtype, OptionsOf(index), pool_, where,
                     planned.selection);
}

}  // namespace moewe::convert
