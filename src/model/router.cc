#include "model/router.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/vector_ops.h"

namespace moewe::model {
namespace {

// The best expert that is not among `taken`.
uint32_t NextBest(std::span<const float> scores, std::span<const float> bias,
                  std::span<const uint32_t> taken) {
  uint32_t best = 0;
  float best_score = 0.0f;
  bool found = false;
  for (uint32_t e = 0; e < scores.size(); ++e) {
    const float score = bias.empty() ? scores[e] : scores[e] + bias[e];
    if (found && !(score > best_score)) continue;
    if (std::find(taken.begin(), taken.end(), e) != taken.end()) continue;
    best = e;
    best_score = score;
    found = true;
  }
  return best;
}

void SortByWeight(std::span<uint32_t> ids, std::span<float> weights) {
  for (size_t i = 1; i < ids.size(); ++i) {
    for (size_t j = i; j > 0; --j) {
      const bool before =
          weights[j] > weights[j - 1] || (weights[j] == weights[j - 1] && ids[j] < ids[j - 1]);
      if (!before) break;
      std::swap(ids[j], ids[j - 1]);
      std::swap(weights[j], weights[j - 1]);
    }
  }
}

}  // namespace

void Route(const MoeConfig& config, std::span<float> logits, std::span<const float> bias,
           std::span<uint32_t> ids, std::span<float> weights) {
  if (config.router_sigmoid) {
    for (float& x : logits) x = 1.0f / (1.0f + std::exp(-x));
  } else {
    kernels::Softmax(logits.data(), logits.size());
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = NextBest(logits, bias, ids.first(i));
    weights[i] = logits[ids[i]];
  }
  SortByWeight(ids, weights);
  const float factor = config.routed_scaling_factor;
  if (config.norm_topk_prob) {
    float sum = 0.0f;
    for (float w : weights) sum += w;
    sum += config.norm_epsilon;
    for (float& w : weights) w = w / sum * factor;
  } else {
    for (float& w : weights) w *= factor;
  }
}

}  // namespace moewe::model
