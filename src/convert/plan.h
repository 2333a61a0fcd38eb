// What a conversion will do, before anything is written: which tensors, in which order, as which
// dtype and why.
#ifndef MOEWE_CONVERT_PLAN_H_
#define MOEWE_CONVERT_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "convert/cut.h"
#include "convert/dtype_choice.h"
#include "convert/selection.h"
#include "formats/checkpoint.h"
#include "model/config.h"

namespace moewe::convert {

struct PlannedTensor {
  formats::TensorView source;
  Selection selection;  // what of it is kept
  std::string name;     // of the target, as what follows
  std::vector<uint64_t> shape;
  DType dtype = DType::kF32;
  std::optional<uint64_t> nbytes;  // nothing where only encoding tells

  bool copied() const { return dtype == source.dtype && selection.all(); }
  // A part of the source's encoding, without decoding it.
  bool gathered() const {
    return dtype == source.dtype && !selection.all() && CanGather(source, selection);
  }
};

// What a source has, before anything is decided about it.
struct SourceTensors {
  std::optional<model::ModelConfig> config;  // of a source that is no CMF file
  std::vector<formats::TensorView> tensors;  // canonical names, in the order of the target
  std::vector<std::string> warnings;
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
// rest; bound like a model, so that a source which could not run is refused. A CMF source keeps its
// names, its order and its skill tensors. Throws Error{kMissingTensor, kParse, kUnsupported}.
SourceTensors ListSource(const formats::Checkpoint& source);

// A CMF source keeps, without `quant`, its dtypes; a .smoe source the Scout's, and its experts
// become f32, which holds their values exactly. `cut` says what is left out; what remains of a
// tensor that keeps its dtype is not decoded where the layout allows. Throws Error{kUnknownName}
// for a rule that matches nothing, kUsage for one that matches only opaque bytes, kParse for a cut
// that does not fit, kUnsupported.
ConvertPlan PlanConversion(const formats::Checkpoint& source, SourceTensors listed,
                           std::optional<DType> quant, const std::vector<TensorRule>& rules,
                           const Cut& cut);

// The same of everything that the source has.
ConvertPlan PlanConversion(const formats::Checkpoint& source, std::optional<DType> quant,
                           const std::vector<TensorRule>& rules);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_PLAN_H_
