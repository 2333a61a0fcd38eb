// Against the scalar definitions, at sizes on and off the grid of vectors; and the delta rule by
// what it means: a key finds the value that was stored under it.
#include "kernels/recurrent.h"

#include <gtest/gtest.h>

#include <algorithm>
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

// Rows of queries, keys and values beside each other, decays, betas.
struct Sample {
  Sample(size_t n, size_t key_dim, size_t value_dim) : key_dim_(key_dim), value_dim_(value_dim) {
    const float unit = 1.0f / std::sqrt(static_cast<float>(key_dim));
    qkv_ = Normal(n * stride(), 1, unit);
    decay_ = Normal(n * key_dim, 2);
    beta_ = Normal(n, 3);
    for (float& d : decay_) d = 1.0f / (1.0f + std::exp(d));
    for (float& b : beta_) b = 1.0f / (1.0f + std::exp(b));
  }
  size_t stride() const { return 2 * key_dim_ + value_dim_; }

  // Tokens [first, first + n), whose results go to out [n, value_dim].
  DeltaTokens Tokens(size_t first, size_t n, bool by_channel, float* out) const {
    const float* query = qkv_.data() + first * stride();
    return {n,
            query,
            query + key_dim_,
            query + 2 * key_dim_,
            stride(),
            decay_.data() + first * key_dim_,
            key_dim_,
            by_channel,
            beta_.data() + first,
            1,
            out,
            value_dim_};
  }

 private:
  const size_t key_dim_, value_dim_;
  std::vector<float> qkv_, decay_, beta_;
};

TEST(Recurrent, DeltaRuleMatchesScalarOverManyTokens) {
  constexpr size_t kCount = 4;
  for (const size_t value_dim : kWidths) {
    for (const size_t key_dim : {size_t{5}, size_t{16}, size_t{128}}) {
      for (const bool by_channel : {false, true}) {
        const Sample sample(kCount, key_dim, value_dim);
        std::vector<float> want_state(key_dim * value_dim, 0.0f), got_state = want_state;
        std::vector<float> want(kCount * value_dim), got = want;
        reference::DeltaRule(sample.Tokens(0, kCount, by_channel, want.data()), key_dim, value_dim,
                             want_state.data());
        DeltaRule(sample.Tokens(0, kCount, by_channel, got.data()), key_dim, value_dim,
                  got_state.data());
        ExpectClose(got, want, 1e-5f);
        ExpectClose(got_state, want_state, 1e-5f);
      }
    }
  }
}

TEST(Recurrent, DeltaRuleGivesTheSameBitsHoweverManyTokensPass) {
  constexpr size_t kCount = 11, kKeys = 24;
  for (const size_t value_dim : kWidths) {
    for (const bool by_channel : {false, true}) {
      const Sample sample(kCount, kKeys, value_dim);
      std::vector<float> whole_state(kKeys * value_dim, 0.1f);
      const std::vector<float> begin = whole_state;
      std::vector<float> whole(kCount * value_dim), parts = whole;
      DeltaRule(sample.Tokens(0, kCount, by_channel, whole.data()), kKeys, value_dim,
                whole_state.data());
      for (const size_t step : {size_t{1}, size_t{3}}) {
        std::vector<float> state = begin;
        for (size_t t = 0; t < kCount; t += step) {
          const size_t n = std::min(step, kCount - t);
          DeltaRule(sample.Tokens(t, n, by_channel, parts.data() + t * value_dim), kKeys, value_dim,
                    state.data());
        }
        EXPECT_EQ(parts, whole);
        EXPECT_EQ(state, whole_state);
      }
    }
  }
}

TEST(Recurrent, WhatWasStoredUnderAKeyIsFoundAndReplaced) {
  const float keys[2][2] = {{1.0f, 0.0f}, {0.0f, 1.0f}};
  const float values[3][3] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
  const float keep = 1.0f, whole = 1.0f;
  std::vector<float> state(6, 0.0f);
  std::vector<float> out(3);
  const auto store = [&](int key, int value, int query) {
    DeltaTokens token;
    token.count = 1;
    token.query = keys[query];
    token.key = keys[key];
    token.value = values[value];
    token.decay = &keep;
    token.beta = &whole;
    token.out = out.data();
    DeltaRule(token, 2, 3, state.data());
    return out;
  };
  EXPECT_EQ(store(0, 0, 0), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(store(1, 1, 0), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(store(0, 2, 0), (std::vector<float>{7, 8, 9}));
  EXPECT_EQ(store(0, 2, 1), (std::vector<float>{4, 5, 6}));
}

}  // namespace
}  // namespace moewe::kernels
