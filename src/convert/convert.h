// Any checkpoint to a CMF file, tensor by tensor: memory is bounded by the largest encoded tensor.
#ifndef MOEWE_CONVERT_CONVERT_H_
#define MOEWE_CONVERT_CONVERT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "convert/expert_cut.h"
#include "convert/ffn_cut.h"
#include "convert/pipeline.h"
#include "convert/plan.h"
#include "formats/checkpoint.h"
#include "platform/thread_pool.h"

namespace moewe::convert {

struct ConvertOptions {
  // Nothing: a CMF source keeps its dtypes, a .smoe source its values (experts become f32), other
  // sources become q8_row.
  std::optional<DType> quant;
  std::vector<TensorRule> tensor_rules;  // the first that matches decides
  EncodeChoices encode;                  // for every tensor that is encoded
  // What is cut out (section 11), at most one of the three: the neurons that a folder says are
  // dead; what a task mask of the source turns off; experts.
  std::string defrag_folder;
  std::string defrag_task;
  std::optional<ExpertCut> expert_cut;
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

// What a conversion will do: the plan, and where its views point.
struct PreparedConversion {
  std::unique_ptr<DefragFolder> folder;  // null without one
  Cut cut;
  Json provenance = Json::object();  // blocks about the cut for the header
  bool drops_masks = false;          // they have no meaning after it
  ConvertPlan plan;
};

// Throws what ListSource, PlanConversion, DefragFolder and CutOfTask throw, and Error{kUsage} for a
// cut of what is no whole model or has no masks.
PreparedConversion PrepareConversion(const formats::Checkpoint& source,
                                     const ConvertOptions& options, ThreadPool& pool);

// What PrepareConversion says, written to `dst`. A CMF source keeps its header fields, tokenizer,
// masks, index, and skill tensors as they are; a cut of neurons drops masks and index, one of
// experts renumbers them. The file, or every shard, appears under its name when all is complete;
// until then "<name>.partial" holds what is done. Throws Error{kUsage} if `dst` is the source or
// lies in its folder, and what PrepareConversion, WriteTensors and CmfWriter throw.
ConvertResult ConvertToCmf(const formats::Checkpoint& source, const std::string& dst,
                           const ConvertOptions& options, ThreadPool& pool);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_CONVERT_H_
