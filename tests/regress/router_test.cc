// Public faults of expert routers: a scaling factor that was skipped without renormalization, and a
// selection bias that leaked into the weights at one pair of sizes. Every combination of the flags
// and a sweep of sizes against the definition, written out in f64.
#include "model/router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

namespace moewe::model {
namespace {

struct Choice {
  std::vector<uint32_t> ids;
  std::vector<double> weights;
};

Choice ByDefinition(const MoeConfig& config, const std::vector<float>& logits,
                    const std::vector<float>& bias, size_t top_k) {
  std::vector<double> scores(logits.size());
  double sum = 0.0;
  for (size_t e = 0; e < logits.size(); ++e) {
    scores[e] = config.router_sigmoid ? 1.0 / (1.0 + std::exp(-static_cast<double>(logits[e])))
                                      : std::exp(static_cast<double>(logits[e]));
    sum += scores[e];
  }
  if (!config.router_sigmoid) {
    for (double& score : scores) score /= sum;
  }
  Choice choice;
  choice.ids.resize(logits.size());
  std::iota(choice.ids.begin(), choice.ids.end(), 0u);
  const auto rank = [&](uint32_t e) { return scores[e] + (bias.empty() ? 0.0 : bias[e]); };
  std::stable_sort(choice.ids.begin(), choice.ids.end(),
                   [&](uint32_t a, uint32_t b) { return rank(a) > rank(b); });
  choice.ids.resize(top_k);
  std::sort(choice.ids.begin(), choice.ids.end(),
            [&](uint32_t a, uint32_t b) { return scores[a] > scores[b]; });
  double chosen = 0.0;
  for (const uint32_t e : choice.ids) chosen += scores[e];
  for (const uint32_t e : choice.ids) {
    choice.weights.push_back(scores[e] / (config.norm_topk_prob ? chosen : 1.0) *
                             static_cast<double>(config.routed_scaling_factor));
  }
  return choice;
}

TEST(PublicFaults, RouterFlagsAndSizes) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0.0f, 1.5f);
  const std::vector<std::pair<size_t, size_t>> sizes = {{2, 1},   {4, 2},   {8, 2},   {16, 4},
                                                        {60, 4},  {64, 6},  {64, 8},  {128, 8},
                                                        {160, 6}, {256, 8}, {384, 8}, {512, 10}};
  for (const auto& [experts, top_k] : sizes) {
    for (const int flags : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}) {
      MoeConfig config;
      config.router_sigmoid = (flags & 1) != 0;
      config.norm_topk_prob = (flags & 2) != 0;
      config.routed_scaling_factor = (flags & 4) != 0 ? 2.5f : 1.0f;
      std::vector<float> logits(experts);
      for (float& logit : logits) logit = normal(random);
      std::vector<float> bias;
      if ((flags & 8) != 0) {
        bias.resize(experts);
        for (float& value : bias) value = normal(random);
      }
      const Choice expected = ByDefinition(config, logits, bias, top_k);
      std::vector<uint32_t> ids(top_k);
      std::vector<float> weights(top_k);
      Route(config, logits, bias, ids, weights);
      ASSERT_EQ(ids, expected.ids) << experts << " experts, flags " << flags;
      for (size_t i = 0; i < top_k; ++i) {
        ASSERT_NEAR(weights[i], expected.weights[i], 2e-5 * (1.0 + expected.weights[i]))
            << experts << " experts, flags " << flags;
      }
    }
  }
}

}  // namespace
}  // namespace moewe::model
