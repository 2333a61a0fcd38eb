// How many bytes of weights decoding one token reads.
#ifndef MOEWE_MODEL_TOKEN_BYTES_H_
#define MOEWE_MODEL_TOKEN_BYTES_H_

#include <cstdint>

#include "model/config.h"
#include "model/task_mask.h"
#include "model/weights.h"

namespace moewe::model {

// In every visit of a live layer: the rows of projections that the mask leaves, output projections
// whole, shared experts, and top_k routed experts of the mean size of those that may be chosen;
// norms and biases; then the head, and one row of the embedding.
uint64_t WeightBytesPerToken(const Weights& weights, const ModelConfig& config,
                             const TaskMask& mask);

}  // namespace moewe::model

#endif  // MOEWE_MODEL_TOKEN_BYTES_H_
