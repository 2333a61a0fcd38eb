#include "model/router.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/vector_ops.h"

namespace moewe::model {
namespace {

// The experts of highest score + bias, best first, ties to the lower index.
void ChooseBest(std::span<const float> scores, std::span<const float> bias,
                std::span<uint32_t> ids) {
  const auto rank = [&](uint32_t e) { return bias.empty() ? scores[e] : scores[e] + bias[e]; };
  size_t found = 0;
  for (uint32_t e = 0; e < scores.size(); ++e) {
    const float score = rank(e);
    if (found < ids.size()) {
      ++found;
    } else if (found == 0 || !(score > rank(ids[found - 1]))) {
      continue;
    }
    size_t place = found - 1;
    for (; place > 0 && score > rank(ids[place - 1]); --place) ids[place] = ids[place - 1];
    ids[place] = e;
  }
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
  ChooseBest(logits, bias, ids);
  for (size_t i = 0; i < ids.size(); ++i) weights[i] = logits[ids[i]];
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
