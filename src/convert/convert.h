// Any checkpoint to a CMF file, tensor by tensor: memory is bounded by the largest encoded tensor.
#ifndef MOEWE_CONVERT_CONVERT_H_
#define MOEWE_CONVERT_CONVERT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "formats/checkpoint.h"
#include "platform/thread_pool.h"

namespace moewe::convert {

struct ConvertOptions {
  // Nothing: a CMF source keeps its dtypes, other sources become q8_row.
  std::optional<DType> quant;
  std::vector<std::pair<std::string, DType>> tensor_rules;  // glob, dtype; the first match wins
  quant::EncodeOptions encode;                              // for every tensor that is encoded
  bool resume = false;
  bool keep_partial = true;  // what was written when it stops early stays for a resume
  // After each tensor: done, total. May throw to stop.
  std::function<void(size_t done, size_t total)> progress;
};

struct ConvertResult {
  uint64_t tensors = 0;
  uint64_t elements = 0;
  uint64_t bytes = 0;      // of tensors
  uint64_t fallbacks = 0;  // matrices that the layout could not hold, written as q8_2f
  std::vector<std::string> warnings;
};

// Hugging Face sources are written under canonical names in this order: embeddings, layers (each in
// the source's order, then its experts' gate, up and down projections by expert number), final
// norm, head, the rest. A CMF source keeps its order, header fields, tokenizer, masks and index,
// and skill tensors as they are. Throws Error{kUsage, kUnsupported, kNoSpace, kIo, ...}.
ConvertResult ConvertToCmf(const formats::Checkpoint& source, const std::string& dst,
                           const ConvertOptions& options, ThreadPool& pool);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_CONVERT_H_
