// A task mask of a CMF file (section 5) made ready to run: what each layer still computes.
//
// Dead neurons, heads and layers contribute nothing and are not computed; routing goes over the
// routable experts only, its softmax over them alone (section 5, 11.1). What a mask leaves whole
// costs nothing: the lists are then empty.
#ifndef MOEWE_MODEL_TASK_MASK_H_
#define MOEWE_MODEL_TASK_MASK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "model/config.h"
#include "model/weights.h"

namespace moewe::model {

// One visit of a layer. A default object leaves the layer whole. Lists are ascending, and empty if
// nothing is masked.
struct LayerMask {
  bool live = true;               // false: the residual stream passes the layer by
  bool no_neurons = false;        // the dense FFN gives zeros
  bool no_heads = false;          // attention gives its output bias, or zeros
  std::vector<uint32_t> neurons;  // that the dense FFN computes
  std::vector<uint32_t> heads;    // query heads that attention computes
  std::vector<uint32_t> experts;  // that the router may choose
};

struct TaskMask {
  std::string name;
  std::vector<LayerMask> visits;  // pass-major, num_loops * num_layers; empty = no mask
};

// The mask that `task` asks for: "none" = no mask, empty = the file's default_task if one of its
// masks has that name. Says on stderr which default is taken, and when the mask's quality was not
// measured.
//
// A row speaks of a layer only if it has the layer's own width (dense FFN neurons, query heads,
// experts); one without a dead bit never matters. Rows for a part that the layer does not have
// (neurons of a layer with experts, experts of a dense one, heads of a recurrent one) are ignored.
//
// Throws Error{kUnknownName} listing the names, Error{kParse} for two masks of that name and for a
// live layer without a routable expert, Error{kUnsupported} for a row that restricts a layer of
// another width (the file was cut after the mask was made) or experts that are chosen by groups.
TaskMask SelectTaskMask(const formats::Checkpoint& checkpoint, const ModelConfig& config,
                        const Weights& weights, const std::string& task);

}  // namespace moewe::model

#endif  // MOEWE_MODEL_TASK_MASK_H_
