// Against the scalar definitions, at sizes on and off the grid of vectors; and the delta rule by
// what it means: a key finds the value that was stored under it.
#include "kernels/recurrent.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/reference.h"

namespace moewe::kernels {
namespace {

constexpr size_t kWidths[] = {1, 7, 8, 16, 24, 31, 33, 64, 80, 128, 200};

std::vector<float> Normal(size_t n, uint32_t seed, float scale = 1.0f) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(n);
  for (float& v : values) v = normal(rng);
  return values;
}

void ExpectClose(const std::vector<float>& got, const std::vector<float>& want, float tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], tolerance * (1.0f + std::abs(want[i]))) << i << "/" << got.size();
  }
}

TEST(Recurrent, CausalConvMatchesScalar) {
  for (const size_t channels : kWidths) {
    const std::vector<float> taps = Normal(4 * channels, 1);
    const std::vector<float> x = Normal(3 * channels, 2);
    const float* const inputs[] = {nullptr, x.data(), x.data() + channels, x.data() + 2 * channels};
    std::vector<float> want(channels);
    std::vector<float> got(channels);
    reference::CausalConv(inputs, taps.data(), channels, want.data());
    CausalConv(inputs, taps.data(), channels, got.data());
    ExpectClose(got, want, 1e-6f);
    EXPECT_NEAR(got[0],
                x[0] * taps[channels] + x[channels] * taps[2 * channels] +
                    x[2 * channels] * taps[3 * channels],
                1e-5f);
  }
}

TEST(Recurrent, SiluMatchesScalar) {
  for (const size_t n : kWidths) {
    for (const float scale : {1.0f, 60.0f}) {
      std::vector<float> want = Normal(n, 4, scale);
      std::vector<float> got = want;
      reference::Silu(want.data(), n);
      Silu(got.data(), n);
      ExpectClose(got, want, 1e-6f);
    }
  }
}

TEST(Recurrent, DecaysMatchScalarAndStayBetweenZeroAndOne) {
  for (const size_t n : kWidths) {
    for (const float least : {0.0f, -5.0f}) {
      for (const float scale : {1.0f, 50.0f}) {
        std::vector<float> rate = Normal(n, 6);
        for (float& r : rate) r = std::exp(r);
        const std::vector<float> bias = Normal(n, 7);
        std::vector<float> want = Normal(n, 8, scale);
        std::vector<float> got = want;
        reference::Decays(rate.data(), bias.data(), least, n, want.data());
        Decays(rate.data(), bias.data(), least, n, got.data());
        ExpectClose(got, want, 2e-6f);
        for (const float decay : got) {
          EXPECT_LE(decay, 1.0f);
          EXPECT_GE(decay, least < 0.0f ? std::exp(-5.0f) * 0.999f : 0.0f);
        }
      }
    }
  }
}

TEST(Recurrent, DeltaRuleMatchesScalarOverManyTokens) {
  for (const size_t value_dim : kWidths) {
    for (const size_t key_dim : {5, 16, 128}) {
      for (const bool by_channel : {false, true}) {
        std::vector<float> want_state(key_dim * value_dim, 0.0f);
        std::vector<float> got_state = want_state;
        for (uint32_t token = 0; token < 4; ++token) {
          const float unit = 1.0f / std::sqrt(static_cast<float>(key_dim));
          const std::vector<float> query = Normal(key_dim, 10 * token + 1, unit);
          const std::vector<float> key = Normal(key_dim, 10 * token + 2, unit);
          const std::vector<float> value = Normal(value_dim, 10 * token + 3);
          std::vector<float> decay = Normal(key_dim, 10 * token + 4);
          for (float& d : decay) d = 1.0f / (1.0f + std::exp(d));
          const DeltaStep step{query.data(), key.data(), value.data(),
                               decay.data(), by_channel, 0.7f};
          std::vector<float> want(value_dim);
          std::vector<float> got(value_dim);
          reference::DeltaRule(step, key_dim, value_dim, want_state.data(), want.data());
          DeltaRule(step, key_dim, value_dim, got_state.data(), got.data());
          ExpectClose(got, want, 1e-5f);
        }
        ExpectClose(got_state, want_state, 1e-5f);
      }
    }
  }
}

TEST(Recurrent, WhatWasStoredUnderAKeyIsFoundAndReplaced) {
  const float keys[2][2] = {{1.0f, 0.0f}, {0.0f, 1.0f}};
  const float values[3][3] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
  const float keep = 1.0f;
  std::vector<float> state(6, 0.0f);
  std::vector<float> out(3);
  const auto store = [&](int key, int value, int query) {
    const DeltaStep step{keys[query], keys[key], values[value], &keep, false, 1.0f};
    DeltaRule(step, 2, 3, state.data(), out.data());
    return out;
  };
  EXPECT_EQ(store(0, 0, 0), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(store(1, 1, 0), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(store(0, 2, 0), (std::vector<float>{7, 8, 9}));
  EXPECT_EQ(store(0, 2, 1), (std::vector<float>{4, 5, 6}));
}

}  // namespace
}  // namespace moewe::kernels
