#include "engine/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "moewe/error.h"

namespace moewe::engine {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

SamplingParams Neutral(float temperature) {
  SamplingParams params;
  params.temperature = temperature;
  params.top_p = 1.0f;
  return params;
}

TokenId SampleOnce(const SamplingParams& params, std::vector<float> logits,
                   const std::vector<TokenId>& history = {}) {
  Sampler sampler(params);
  for (const TokenId id : history) sampler.Observe(id);
  return sampler.Sample(logits);
}

TEST(Random, PublishedSequence) {
  // splitmix64 of seed 1234567, the published test values, give the state; the first output of
  // xoshiro256++ then follows by hand: rotl(s0 + s3, 23) + s0.
  const uint64_t s0 = 6457827717110365317u;
  const uint64_t s3 = 4593380528125082431u;
  Random random(1234567);
  EXPECT_EQ(random.Next(), std::rotl(s0 + s3, 23) + s0);
}

TEST(ExpNonPositive, MatchesTheLibraryWithinTwoUlp) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> range(-700.0, 0.0);
  for (int i = 0; i < 100000; ++i) {
    const double x = i < 1000 ? -i * 1e-3 : range(random);
    const double expected = std::exp(x);
    EXPECT_NEAR(ExpNonPositive(x), expected, 2 * expected * 0x1p-52) << x;
  }
  EXPECT_EQ(ExpNonPositive(0.0), 1.0);
  EXPECT_EQ(ExpNonPositive(-kInf), 0.0);
  EXPECT_EQ(ExpNonPositive(-1e300), 0.0);
  EXPECT_GT(ExpNonPositive(-708.0), 0.0);
}

TEST(Sampler, GreedyTakesTheLowestIdOfEquals) {
  EXPECT_EQ(SampleOnce(Neutral(0), {1, 3, 3, 2}), 1);
  EXPECT_EQ(SampleOnce(Neutral(0), {-kInf, -5, -kInf}), 1);
}

TEST(Sampler, NothingToChooseFromIsAnError) {
  for (const float temperature : {0.0f, 1.0f}) {
    EXPECT_THROW(SampleOnce(Neutral(temperature), {1, kNan, 2}), Error);
    EXPECT_THROW(SampleOnce(Neutral(temperature), {1, kInf}), Error);
    EXPECT_THROW(SampleOnce(Neutral(temperature), {-kInf, -kInf}), Error);
    EXPECT_THROW(SampleOnce(Neutral(temperature), {}), Error);
  }
}

TEST(Sampler, BiasComesBeforePenalties) {
  SamplingParams params = Neutral(0);
  params.logit_bias = {{0, 4.0f}};
  params.repetition_penalty = 2.0f;
  // Token 0: (-1 + 4) / 2 = 1.5. In the other order: -1 * 2 + 4 = 2.
  EXPECT_EQ(SampleOnce(params, {-1.0f, 1.75f}, {0}), 1);
  EXPECT_EQ(SampleOnce(params, {-1.0f, 1.25f}, {0}), 0);
}

TEST(Sampler, RepetitionDividesPositiveAndMultipliesNegative) {
  SamplingParams params = Neutral(0);
  params.repetition_penalty = 2.0f;
  EXPECT_EQ(SampleOnce(params, {3.0f, 1.6f}, {0}), 1);        // 1.5 < 1.6
  EXPECT_EQ(SampleOnce(params, {3.0f, 1.4f}, {0, 0, 0}), 0);  // once, however often it was there
  EXPECT_EQ(SampleOnce(params, {-1.0f, -1.5f}, {0}), 1);      // -2 < -1.5
}

TEST(Sampler, FrequencyCountsAndPresenceDoesNot) {
  SamplingParams params = Neutral(0);
  params.frequency_penalty = 0.5f;
  EXPECT_EQ(SampleOnce(params, {2.0f, 0.6f}, {0, 0}), 0);     // 1.0
  EXPECT_EQ(SampleOnce(params, {2.0f, 0.6f}, {0, 0, 0}), 1);  // 0.5
  params.frequency_penalty = 0.0f;
  params.presence_penalty = 1.0f;
  EXPECT_EQ(SampleOnce(params, {2.0f, 0.6f}, {0, 0, 0}), 0);  // 1.0
  // After the repetition penalty: 2 / 2 - 1 = 0, not (2 - 1) / 2 = 0.5.
  params.repetition_penalty = 2.0f;
  EXPECT_EQ(SampleOnce(params, {2.0f, 0.25f}, {0}), 1);
}

TEST(Sampler, WindowCountsTheLastTokensOnly) {
  SamplingParams params = Neutral(0);
  params.presence_penalty = 2.0f;
  params.penalty_window = 3;
  EXPECT_EQ(SampleOnce(params, {2.0f, 1.0f, 0.0f}, {0, 2, 2, 2}), 0);
  EXPECT_EQ(SampleOnce(params, {2.0f, 1.0f, 0.0f}, {2, 0, 2, 2}), 1);
  params.penalty_window = 0;
  EXPECT_EQ(SampleOnce(params, {2.0f, 1.0f, 0.0f}, {0, 2, 2, 2}), 1);
}

TEST(Sampler, MinusInfinityBiasForbids) {
  SamplingParams params = Neutral(1.0f);
  params.logit_bias = {{1, -kInf}};
  for (params.seed = 0; params.seed < 50; ++params.seed) {
    EXPECT_EQ(SampleOnce(params, {0.0f, 20.0f}), 0);
  }
}

// The definition, with everything sorted and nothing clever: probability of each id.
std::map<TokenId, double> Reference(const SamplingParams& p, const std::vector<float>& logits) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (p.top_k != 0) order.resize(std::min<size_t>(order.size(), p.top_k));
  const auto weight = [&](size_t i) {
    return std::exp((double{logits[i]} - double{logits[order[0]]}) / p.temperature);
  };
  double sum = 0;
  for (const size_t i : order) sum += weight(i);
  std::map<TokenId, double> kept;
  double running = 0;
  double kept_sum = 0;
  for (const size_t i : order) {
    if (p.top_p < 1 && running >= p.top_p * sum && !kept.empty()) break;
    running += weight(i);
    if (weight(i) < p.min_p) continue;
    kept[static_cast<TokenId>(i)] = weight(i);
    kept_sum += weight(i);
  }
  for (auto& [id, w] : kept) w /= kept_sum;
  return kept;
}

TEST(Sampler, DrawsFollowTheDefinition) {
  std::vector<float> logits(300);
  std::mt19937 random(11);
  for (float& logit : logits) logit = static_cast<float>(random() % 64) / 8.0f;  // many ties
  struct Case {
    float temperature;
    uint32_t top_k;
    float top_p, min_p;
  };
  for (const Case& c : {Case{1, 0, 1, 0}, Case{0.7f, 5, 1, 0}, Case{1, 0, 0.5f, 0},
                        Case{1.5f, 0, 1, 0.2f}, Case{1, 100, 0.9f, 0.3f}, Case{0.3f, 7, 0.3f, 0},
                        Case{2, 0, 0, 0}, Case{1, 0, 0.99f, 0}, Case{1, 1000, 1, 0}}) {
    SamplingParams params;
    params.temperature = c.temperature;
    params.top_k = c.top_k;
    params.top_p = c.top_p;
    params.min_p = c.min_p;
    params.seed = 5;
    const std::map<TokenId, double> expected = Reference(params, logits);
    constexpr int kDraws = 20000;
    std::map<TokenId, int> drawn;
    Sampler sampler(params);
    for (int i = 0; i < kDraws; ++i) {
      std::vector<float> copy = logits;
      ++drawn[sampler.Sample(copy)];
    }
    for (const auto& [id, n] : drawn) EXPECT_TRUE(expected.contains(id)) << id;
    for (const auto& [id, probability] : expected) {
      const double sigma = std::sqrt(kDraws * probability * (1 - probability));
      // Rare tokens are Poisson, not normal: three draws where none is expected prove nothing.
      EXPECT_NEAR(drawn[id], kDraws * probability, 5 * sigma + 3)
          << "token " << id << " T " << c.temperature << " k " << c.top_k << " p " << c.top_p;
    }
  }
}

TEST(Sampler, TheDrawIsThePlaceOfTheRandomNumberInFallingOrder) {
  // Weights 8 : 4 : 2 : 1 in a mixed order of ids.
  const float ln2 = std::log(2.0f);
  const std::vector<float> logits = {1 * ln2, 3 * ln2, 0, 2 * ln2};
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SamplingParams params = Neutral(1.0f);
    params.seed = seed;
    const double u = Random(seed).NextUnit() * 15;
    const TokenId expected = u < 8 ? 1 : u < 12 ? 3 : u < 14 ? 0 : 2;
    EXPECT_EQ(SampleOnce(params, logits), expected) << u;
  }
}

TEST(Sampler, SameSeedSameTokens) {
  std::mt19937 random(2);
  std::vector<std::vector<float>> steps(20, std::vector<float>(1000));
  for (auto& step : steps) {
    for (float& logit : step) logit = static_cast<float>(random() % 1000) / 250.0f;
  }
  const auto run = [&](uint64_t seed) {
    SamplingParams params = Neutral(1.0f);
    params.seed = seed;
    Sampler sampler(params);
    std::vector<TokenId> ids;
    for (std::vector<float> step : steps) ids.push_back(sampler.Sample(step));
    return ids;
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

TEST(SamplingParams, OutOfRangeValuesAreRefused) {
  const auto refused = [](auto change) {
    SamplingParams params;
    change(params);
    EXPECT_THROW(params.Validate(10), Error);
  };
  SamplingParams().Validate(10);
  for (const float bad : {-0.1f, kNan, kInf}) {
    refused([&](SamplingParams& p) { p.temperature = bad; });
    refused([&](SamplingParams& p) { p.top_p = bad; });
    refused([&](SamplingParams& p) { p.min_p = bad; });
    refused([&](SamplingParams& p) { p.repetition_penalty = bad; });
  }
  refused([](SamplingParams& p) { p.top_p = 1.5f; });
  refused([](SamplingParams& p) { p.repetition_penalty = 0.0f; });
  refused([](SamplingParams& p) { p.presence_penalty = kNan; });
  refused([](SamplingParams& p) { p.frequency_penalty = kInf; });
  refused([](SamplingParams& p) { p.logit_bias = {{10, 1.0f}}; });
  refused([](SamplingParams& p) { p.logit_bias = {{-1, 1.0f}}; });
  refused([](SamplingParams& p) { p.logit_bias = {{1, kInf}}; });
  refused([](SamplingParams& p) { p.logit_bias = {{1, kNan}}; });
}

}  // namespace
}  // namespace moewe::engine
