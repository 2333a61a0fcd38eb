#include "model/router.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/vector_ops.h"
#include "model/config_limits.h"

namespace moewe::model {
namespace {

// Whether an expert takes part, by group.
using LiveGroups = std::bitset<kMaxRouterGroups>;

// The experts of highest score + bias, best first, ties to the lower index; of the live groups of
// `group_size` experts each.
void ChooseBest(std::span<const float> scores, std::span<const float> bias, const LiveGroups& live,
                size_t group_size, std::span<uint32_t> ids) {
  const auto rank = [&](uint32_t e) { return bias.empty() ? scores[e] : scores[e] + bias[e]; };
  size_t found = 0;
  for (uint32_t e = 0; e < scores.size(); ++e) {
    if (!live[e / group_size]) continue;
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

// The best groups: all if there is one, or if they would have fewer experts than are to be chosen.
LiveGroups ChooseGroups(const MoeConfig& config, std::span<const float> scores,
                        std::span<const float> bias, size_t wanted) {
  LiveGroups live;
  const size_t size = scores.size() / config.groups;
  if (config.groups == 1 || config.top_groups * size < wanted) return live.set();
  std::array<float, kMaxRouterGroups> best;
  for (uint32_t group = 0; group < config.groups; ++group) {
    float first = -std::numeric_limits<float>::infinity();
    float second = first;
    for (size_t e = group * size; e < (group + 1) * size; ++e) {
      const float score = bias.empty() ? scores[e] : scores[e] + bias[e];
      if (score > first) {
        second = std::exchange(first, score);
      } else if (score > second) {
        second = score;
      }
    }
    best[group] = config.group_score == GroupScore::kBest || size == 1 ? first : first + second;
  }
  for (uint32_t i = 0; i < config.top_groups; ++i) {
    uint32_t next = config.groups;
    for (uint32_t group = 0; group < config.groups; ++group) {
      if (!live[group] && (next == config.groups || best[group] > best[next])) next = group;
    }
    live.set(next);
  }
  return live;
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
  ChooseBest(logits, bias, ChooseGroups(config, logits, bias, ids.size()),
             std::max<size_t>(logits.size() / config.groups, 1), ids);
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
