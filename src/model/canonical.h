// One set of tensor names and shapes for every family, before weights are bound or written.
//
// Fused projections are split, 3-D expert banks become one matrix an expert, w1/w3/w2 become
// gate/up/down, families' own names become the Hugging Face names of CMF section 2.2
// (mlp.gate.weight, mlp.experts.{e}.gate_proj.weight, mlp.expert_bias, mlp.shared_expert.*,
// model.mtp.*, ...), "language_model." is dropped. All results are views into the checkpoint.
#ifndef MOEWE_MODEL_CANONICAL_H_
#define MOEWE_MODEL_CANONICAL_H_

#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "model/config.h"

namespace moewe::model {

// Views under canonical names, in the source's order (expert banks in expert order). A CMF file's
// tensors are canonical already and come back as they are, with skill.* left out. Parts that a text
// model does not have (vision towers) are left out too, and what was left out is told in *warnings
// if that is not null. Throws Error{kUnsupported} naming the tensor if a source tensor's role is
// unknown and it would change the math; Error{kParse} for shapes that do not fit the config and for
// two tensors with one role.
std::vector<formats::TensorView> CanonicalTensors(const formats::Checkpoint& checkpoint,
                                                  const ModelConfig& config,
                                                  std::vector<std::string>* warnings = nullptr);

}  // namespace moewe::model

#endif  // MOEWE_MODEL_CANONICAL_H_
