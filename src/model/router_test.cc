// Choosing experts by groups, against small cases worked out by hand.
#include "model/router.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace moewe::model {
namespace {

struct Chosen {
  std::vector<uint32_t> ids;
  std::vector<float> weights;
};

Chosen RouteBySigmoid(MoeConfig config, std::vector<float> logits, std::vector<float> bias = {}) {
  config.router_sigmoid = true;
  config.num_experts = static_cast<uint32_t>(logits.size());
  Chosen chosen{std::vector<uint32_t>(config.top_k), std::vector<float>(config.top_k)};
  Route(config, logits, bias, chosen.ids, chosen.weights);
  return chosen;
}

using Ids = std::vector<uint32_t>;

TEST(Router, WithoutGroupsTheBestAreChosen) {
  EXPECT_EQ(RouteBySigmoid({.top_k = 2}, {3, 0, 2, 1}).ids, (Ids{0, 2}));
}

// Groups {0, 1}, {2, 3}, {4, 5}; the first has the single best, the second the best two.
TEST(Router, GroupsByTheirBest) {
  const MoeConfig config{.top_k = 2, .groups = 3, .top_groups = 1};
  EXPECT_EQ(RouteBySigmoid(config, {4, -4, 2, 1, 0, 0}).ids, (Ids{0, 1}));
}

TEST(Router, GroupsByTheirTwoBest) {
  const MoeConfig config{
      .top_k = 2, .groups = 3, .top_groups = 1, .group_score = GroupScore::kBestTwo};
  EXPECT_EQ(RouteBySigmoid(config, {4, -4, 2, 1, 0, 0}).ids, (Ids{2, 3}));
}

TEST(Router, TheBiasChoosesGroupsAndIsNoPartOfTheWeights) {
  const MoeConfig config{
      .top_k = 1, .groups = 3, .top_groups = 1, .group_score = GroupScore::kBestTwo};
  const Chosen chosen = RouteBySigmoid(config, {4, 4, 0, 0, 0, 0}, {0, 0, 0, 0, 3, 2});
  EXPECT_EQ(chosen.ids, (Ids{4}));
  EXPECT_EQ(chosen.weights, (std::vector<float>{0.5f}));
}

TEST(Router, EqualGroupsGoToTheLowerOne) {
  const MoeConfig config{.top_k = 2, .groups = 2, .top_groups = 1};
  EXPECT_EQ(RouteBySigmoid(config, {1, 1, 1, 1}).ids, (Ids{0, 1}));
}

TEST(Router, SeveralGroupsTakePart) {
  const MoeConfig config{.top_k = 3, .groups = 4, .top_groups = 2};
  EXPECT_EQ(RouteBySigmoid(config, {0, 1, 9, -9, 2, 3, 8, -8}).ids, (Ids{2, 6, 7}));
}

// Scores that are no numbers give some experts, each once.
TEST(Router, NotANumberStillGivesDistinctExperts) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const MoeConfig config{
      .top_k = 2, .groups = 2, .top_groups = 1, .group_score = GroupScore::kBestTwo};
  const Chosen chosen = RouteBySigmoid(config, {nan, nan, nan, nan});
  EXPECT_NE(chosen.ids[0], chosen.ids[1]);
  EXPECT_LT(chosen.ids[0], 4u);
  EXPECT_LT(chosen.ids[1], 4u);
}

}  // namespace
}  // namespace moewe::model
