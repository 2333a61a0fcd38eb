// What a conversion will do, before anything is written: which tensors, in which order, as which
// dtype and why.
#ifndef MOEWE_CONVERT_PLAN_H_
#define MOEWE_CONVERT_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "convert/dtype_choice.h"
#include "formats/checkpoint.h"
#include "model/config.h"

namespace moewe::convert {

struct PlannedTensor {
  formats::TensorView source;
  DType dtype = DType::kF32;       // of the target
  std::optional<uint64_t> nbytes;  // of the target; nothing where only encoding tells
  bool copied() const { return dtype == source.dtype; }
};

struct ConvertPlan {
  std::optional<model::ModelConfig> config;  // of a source that is no CMF file
  std::vector<PlannedTensor> tensors;        // in file order
  std::vector<std::string> warnings;         // of the source
  std::vector<std::string> notes;  // one line for each kind of thing done otherwise than asked
  uint64_t elements = 0;
  uint64_t fallbacks = 0;     // matrices that the asked layout cannot hold: q8_2f
  uint64_t source_bytes = 0;  // of the tensors
};

// Hugging Face sources: canonical names in the order embeddings, layers (each in the source's
// order, then its experts' gate, up and down projections by expert number), final norm, head, the
// rest; bound like a model, so that a source which could not run is refused. A CMF source keeps
// its order, its skill tensors and, without `quant`, its dtypes. Throws Error{kUnknownName} for a
// rule that matches nothing, kUsage for one that matches only opaque bytes, kMissingTensor, kParse,
// kUnsupported.
ConvertPlan PlanConversion(const formats::Checkpoint& source, std::optional<DType> quant,
                           const std::vector<TensorRule>& rules);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_PLAN_H_
