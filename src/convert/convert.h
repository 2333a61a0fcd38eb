// Any checkpoint to a CMF file, tensor by tensor: memory is bounded by the largest encoded tensor.
#ifndef MOEWE_CONVERT_CONVERT_H_
#define MOEWE_CONVERT_CONVERT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "convert/pipeline.h"
#include "convert/plan.h"
#include "formats/checkpoint.h"
#include "platform/thread_pool.h"

namespace moewe::convert {

struct ConvertOptions {
  // Nothing: a CMF source keeps its dtypes, other sources become q8_row.
  std::optional<DType> quant;
  std::vector<TensorRule> tensor_rules;  // the first that matches decides
  EncodeChoices encode;                  // for every tensor that is encoded
  // Files of at most so many bytes where one would be larger: "<dst without
  // .cmf>-NNNNN-of-NNNNN.cmf".
  std::optional<uint64_t> shard_max;
  bool resume = false;
  bool keep_partial = true;  // what is written when it stops early stays for a resume
  // Called after each tensor; may throw to stop: what was written stays for a resume.
  std::function<void(const ConvertProgress&)> progress;
  // One line for the user each: warnings about the source, and what is done otherwise than asked.
  // Called before the work.
  std::function<void(const std::string&)> warning;
  std::function<void(const std::string&)> note;
};

struct ConvertResult {
  std::vector<std::string> files;
  uint64_t tensors = 0;
  uint64_t elements = 0;
  uint64_t bytes = 0;      // of tensors
  uint64_t fallbacks = 0;  // matrices that the layout could not hold, written as q8_2f
  std::vector<std::string> warnings;
};

// What PlanConversion says, written to `dst`. A CMF source keeps its header fields, tokenizer,
// masks, index, and skill tensors as they are. The file, or every shard, appears under its name
// when all is complete; until then "<name>.partial" holds what is done. Throws Error{kUsage} if
// `dst` is the source or lies in its folder, and what PlanConversion, WriteTensors and CmfWriter
// throw.
ConvertResult ConvertToCmf(const formats::Checkpoint& source, const std::string& dst,
                           const ConvertOptions& options, ThreadPool& pool);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_CONVERT_H_
