#include "kernels/vector_ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/reference.h"

namespace moewe::kernels {
namespace {

constexpr size_t kSizes[] = {1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 257, 2048};

std::vector<float> Random(size_t n, uint32_t seed, float scale = 1.0f) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(n);
  for (float& v : values) v = normal(rng);
  return values;
}

void ExpectNear(const std::vector<float>& got, const std::vector<float>& want, float relative,
                float absolute) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], std::abs(want[i]) * relative + absolute) << i << "/" << got.size();
  }
}

TEST(VectorOps, RmsNormMatchesScalar) {
  for (size_t n : kSizes) {
    const std::vector<float> x = Random(n, 1, 3.0f);
    const std::vector<float> w = Random(n, 2);
    for (const float* weight : {static_cast<const float*>(nullptr), w.data()}) {
      for (float offset : {0.0f, 1.0f}) {
        std::vector<float> want(n);
        std::vector<float> got(n);
        reference::RmsNorm(x.data(), weight, offset, 1e-6f, n, want.data());
        RmsNorm(x.data(), weight, offset, 1e-6f, n, got.data());
        ExpectNear(got, want, 1e-6f, 1e-9f);
        std::vector<float> in_place = x;
        RmsNorm(in_place.data(), weight, offset, 1e-6f, n, in_place.data());
        EXPECT_EQ(in_place, got);
      }
    }
  }
}

TEST(VectorOps, RmsNormOfZerosIsZero) {
  std::vector<float> x(33, 0.0f);
  RmsNorm(x.data(), nullptr, 0.0f, 1e-6f, x.size(), x.data());
  for (float v : x) EXPECT_EQ(v, 0.0f);
}

TEST(VectorOps, RopeMatchesScalar) {
  for (size_t pairs : {1u, 2u, 3u, 4u, 7u, 8u, 12u, 16u, 32u, 64u}) {
    for (bool interleaved : {false, true}) {
      const std::vector<float> angles = Random(pairs, 3, 2.0f);
      std::vector<float> cos(pairs);
      std::vector<float> sin(pairs);
      for (size_t i = 0; i < pairs; ++i) {
        cos[i] = std::cos(angles[i]);
        sin[i] = std::sin(angles[i]);
      }
      std::vector<float> want = Random(2 * pairs + 5, 4);
      std::vector<float> got = want;
      reference::ApplyRope(want.data(), cos.data(), sin.data(), pairs, interleaved);
      ApplyRope(got.data(), cos.data(), sin.data(), pairs, interleaved);
      ExpectNear(got, want, 1e-6f, 1e-6f);
      for (size_t i = 2 * pairs; i < got.size(); ++i) EXPECT_EQ(got[i], want[i]);
    }
  }
}

TEST(VectorOps, SoftmaxMatchesScalar) {
  for (size_t n : kSizes) {
    for (float scale : {0.1f, 5.0f, 40.0f}) {
      std::vector<float> want = Random(n, 5, scale);
      if (n > 2) want[n / 2] = -std::numeric_limits<float>::infinity();
      std::vector<float> got = want;
      reference::Softmax(want.data(), n);
      Softmax(got.data(), n);
      ExpectNear(got, want, 2e-6f, 1e-30f);
    }
  }
}

TEST(VectorOps, SoftmaxOfNothingButMinusInfinityIsZero) {
  std::vector<float> x(19, -std::numeric_limits<float>::infinity());
  Softmax(x.data(), x.size());
  for (float v : x) EXPECT_EQ(v, 0.0f);
}

TEST(VectorOps, SoftmaxKeepsNanVisible) {
  std::vector<float> x(19, 1.0f);
  x[11] = std::numeric_limits<float>::quiet_NaN();
  Softmax(x.data(), x.size());
  EXPECT_TRUE(std::isnan(x[11]));
}

TEST(VectorOps, SoftCapMatchesScalar) {
  for (size_t n : kSizes) {
    std::vector<float> want = Random(n, 6, 30.0f);
    want[0] = 1e-4f;
    std::vector<float> got = want;
    reference::SoftCap(want.data(), 30.0f, n);
    SoftCap(got.data(), 30.0f, n);
    ExpectNear(got, want, 1e-6f, 1e-9f);
  }
}

TEST(VectorOps, AddScaledMatchesScalar) {
  for (size_t n : kSizes) {
    const std::vector<float> x = Random(n, 7);
    std::vector<float> want = Random(n, 8);
    std::vector<float> got = want;
    reference::AddScaled(want.data(), x.data(), 0.37f, n);
    AddScaled(got.data(), x.data(), 0.37f, n);
    EXPECT_EQ(got, want);
  }
}

TEST(VectorOps, GateTimesUpMatchesScalar) {
  for (const Gate& function : {Gate(GateFunction::kSilu), Gate(GateFunction::kGeluTanh),
                               Gate(GateFunction::kClampedSwiglu, 1.702f, 1.5f)}) {
    for (size_t n : kSizes) {
      for (float scale : {0.01f, 1.0f, 20.0f}) {
        const std::vector<float> up = Random(n, 9);
        std::vector<float> want = Random(n, 10, scale);
        std::vector<float> got = want;
        reference::GateTimesUp(function, want.data(), up.data(), n);
        GateTimesUp(function, got.data(), up.data(), n);
        // Far on the negative side the true value fades to nothing.
        ExpectNear(got, want, 3e-6f, 1e-7f);
      }
    }
  }
}

TEST(VectorOps, GateTimesUpOfExtremes) {
  for (GateFunction function : {GateFunction::kSilu, GateFunction::kGeluTanh}) {
    const std::vector<float> up(9, 2.0f);
    std::vector<float> gate = {0.0f,  -0.0f, 1e-30f,
                               50.0f, 1e4f,  -200.0f,
                               -1e4f, 3e30f, std::numeric_limits<float>::quiet_NaN()};
    GateTimesUp(function, gate.data(), up.data(), gate.size());
    EXPECT_EQ(gate[0], 0.0f);
    EXPECT_EQ(gate[1], 0.0f);
    EXPECT_NEAR(gate[2], 1e-30f, 1e-35f);
    EXPECT_EQ(gate[3], 100.0f);
    EXPECT_EQ(gate[4], 2e4f);
    EXPECT_NEAR(gate[5], 0.0f, 1e-30f);
    EXPECT_NEAR(gate[6], 0.0f, 1e-30f);
    EXPECT_FLOAT_EQ(gate[7], 6e30f);
    EXPECT_TRUE(std::isnan(gate[8]));
  }
}

TEST(VectorOps, TimesGateMatchesScalar) {
  for (OutputGate function : {OutputGate::kSigmoid, OutputGate::kSoftplus}) {
    for (size_t n : kSizes) {
      for (float scale : {0.01f, 1.0f, 20.0f}) {
        const std::vector<float> gate = Random(n, 11, scale);
        std::vector<float> want = Random(n, 12);
        std::vector<float> got = want;
        reference::TimesGate(function, want.data(), gate.data(), n);
        TimesGate(function, got.data(), gate.data(), n);
        ExpectNear(got, want, 3e-6f, 1e-9f);
      }
    }
  }
}

TEST(VectorOps, TimesGateOfExtremes) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> gate = {0.0f, 1e4f, -1e4f, 3e30f, -3e30f, 30.0f, nan, 0.0f, -20.0f};
  std::vector<float> sigmoid(gate.size(), 2.0f);
  sigmoid[7] = nan;
  std::vector<float> softplus = sigmoid;
  TimesGate(OutputGate::kSigmoid, sigmoid.data(), gate.data(), gate.size());
  TimesGate(OutputGate::kSoftplus, softplus.data(), gate.data(), gate.size());
  EXPECT_EQ(sigmoid[0], 1.0f);
  EXPECT_EQ(sigmoid[1], 2.0f);
  EXPECT_NEAR(sigmoid[2], 0.0f, 1e-30f);
  EXPECT_EQ(sigmoid[3], 2.0f);
  EXPECT_NEAR(sigmoid[4], 0.0f, 1e-30f);
  EXPECT_FLOAT_EQ(softplus[0], 2.0f * std::log(2.0f));
  EXPECT_EQ(softplus[1], 2e4f);
  EXPECT_EQ(softplus[2], 0.0f);
  EXPECT_EQ(softplus[3], 6e30f);
  EXPECT_EQ(softplus[4], 0.0f);
  EXPECT_FLOAT_EQ(softplus[5], 60.0f);
  EXPECT_FLOAT_EQ(softplus[8], 2.0f * std::exp(-20.0f));
  for (const std::vector<float>& result : {sigmoid, softplus}) {
    EXPECT_TRUE(std::isnan(result[6]));
    EXPECT_TRUE(std::isnan(result[7]));
  }
}

TEST(VectorOps, ClampedSwigluOfExtremes) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> gate = {9.0f, 9.0f, 2.0f, 2.0f, -1e4f, 0.0f, nan, 1.0f, inf};
  const std::vector<float> up = {9.0f, -9.0f, -1.0f, 3.0f, 3.0f, 3.0f, 1.0f, nan, inf};
  GateTimesUp({GateFunction::kClampedSwiglu, 2.0f, 7.0f}, gate.data(), up.data(), gate.size());
  const auto swish = [](float x) { return x / (1.0f + std::exp(-2.0f * x)); };
  EXPECT_FLOAT_EQ(gate[0], swish(7.0f) * 8.0f);
  EXPECT_FLOAT_EQ(gate[1], swish(7.0f) * -6.0f);
  EXPECT_EQ(gate[2], 0.0f);
  EXPECT_FLOAT_EQ(gate[3], swish(2.0f) * 4.0f);
  EXPECT_NEAR(gate[4], 0.0f, 1e-30f);
  EXPECT_EQ(gate[5], 0.0f);
  EXPECT_TRUE(std::isnan(gate[6]));
  EXPECT_TRUE(std::isnan(gate[7]));
  EXPECT_FLOAT_EQ(gate[8], swish(7.0f) * 8.0f);
}

TEST(VectorOps, SoftCapOfExtremes) {
  std::vector<float> x = {0.0f, 1e30f, -1e30f, std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()};
  SoftCap(x.data(), 30.0f, x.size());
  EXPECT_EQ(x[0], 0.0f);
  EXPECT_FLOAT_EQ(x[1], 30.0f);
  EXPECT_FLOAT_EQ(x[2], -30.0f);
  EXPECT_FLOAT_EQ(x[3], 30.0f);
  EXPECT_TRUE(std::isnan(x[4]));
}

}  // namespace
}  // namespace moewe::kernels
