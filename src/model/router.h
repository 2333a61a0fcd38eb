// Which experts a token goes to, and with what weights (CMF v2 section 2.2).
#ifndef MOEWE_MODEL_ROUTER_H_
#define MOEWE_MODEL_ROUTER_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "model/config.h"

namespace moewe::model {

// Chooses ids.size() experts (at most logits.size()) for one token.
//
// With groups, only experts of the top_groups best groups are chosen while those have enough; a
// group's score is over score + bias, ties between groups go to the lower one.
//
// Scores are the softmax over all logits, or each logit's sigmoid. The choice goes by score + bias
// (bias empty = 0), ties to the lower index; the weights are the chosen scores without bias,
// divided by their sum (+ epsilon) if norm_topk_prob, times the scaling factor. Results come
// weight-descending, ties by lower id. `logits` is overwritten with scores. Always yields valid,
// distinct ids, even for NaN logits. No allocation.
void Route(const MoeConfig& config, std::span<float> logits, std::span<const float> bias,
           std::span<uint32_t> ids, std::span<float> weights);

}  // namespace moewe::model

#endif  // MOEWE_MODEL_ROUTER_H_
