// Output gates and sinks of an attention layer, held to layers without them that must give the
// same.
#include "model/attention_block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <vector>

#include "kernels/test_matrices.h"
#include "model/kv_cache.h"
#include "model/rope_config.h"

namespace moewe::model {
namespace {

using kernels::Matrix;
using kernels::RandomFloats;

constexpr uint32_t kHidden = 24;
constexpr uint32_t kHeads = 6;
constexpr uint32_t kKvHeads = 2;
constexpr uint32_t kHeadDim = 10;
constexpr uint32_t kMixed = kHeads * kHeadDim;
constexpr size_t kTokens = 7;

// One layer: grouped queries, q/k norms, rotation of a part of each head.
class Layer {
 public:
  Layer() {
    config_.hidden_size = kHidden;
    config_.num_layers = 1;
    config_.attention_scale = 0.4f;
    config_.layers = {{.num_heads = kHeads, .num_kv_heads = kKvHeads, .head_dim = kHeadDim}};
    Rope rope;
    rope.rotary_dim = 6;
    FinishRope(&rope);
    config_.ropes = {rope};
    weights.q = F32(RandomFloats(kMixed * kHidden, 1), kMixed, kHidden);
    weights.k = F32(RandomFloats(kKvHeads * kHeadDim * kHidden, 2), kKvHeads * kHeadDim, kHidden);
    weights.v = F32(RandomFloats(kKvHeads * kHeadDim * kHidden, 3), kKvHeads * kHeadDim, kHidden);
    weights.o = F32(RandomFloats(kHidden * kMixed, 4), kHidden, kMixed);
    weights.q_norm = RandomFloats(kHeadDim, 5);
    weights.k_norm = RandomFloats(kHeadDim, 6);
    weights.q_bias = RandomFloats(kMixed, 7);
  }

  Matrix F32(std::vector<float> values, uint32_t rows, uint32_t cols) {
    stored_.push_back(std::move(values));
    const auto* bytes = reinterpret_cast<const uint8_t*>(stored_.back().data());
    return {DType::kF32, rows, cols, Bytes(bytes, stored_.back().size() * sizeof(float))};
  }

  // The output for `kTokens` tokens, `chunk` a step.
  std::vector<float> Run(const LayerMask& mask = {}, size_t chunk = kTokens) {
    const std::vector<float> x = RandomFloats(kTokens * kHidden, 8);
    ThreadPool threads(2);
    kernels::Compute compute(&threads, kernels::Activations::kF32);
    KvPool pool(config_, KvType::kF32, 4);
    Sequence sequence(&pool);
    AttentionScratch scratch;
    AttentionBlock block(0, config_, weights, mask, &scratch);
    std::vector<float> out(x.size());
    for (size_t begin = 0; begin < kTokens; begin += chunk) {
      const size_t n = std::min(chunk, kTokens - begin);
      std::vector<StepRow> rows;
      std::vector<RopeTable> ropes{RopeTable(config_.ropes.data())};
      ropes[0].Resize(n);
      for (size_t i = 0; i < n; ++i) {
        rows.push_back({0, static_cast<uint32_t>(begin + i)});
        ropes[0].Fill(i, rows.back().position);
      }
      sequence.Reserve(n);
      Sequence* one = &sequence;
      const size_t first_rows[] = {0, n};
      const Step step{&compute, rows, {&one, 1}, first_rows, ropes};
      block.Run(step, x.data() + begin * kHidden, out.data() + begin * kHidden);
      sequence.Commit(n);
    }
    return out;
  }

  AttentionWeights weights;

 private:
  ModelConfig config_;
  std::deque<std::vector<float>> stored_;
};

// Elements of `matrix` (of f32), which is also how its columns are scaled below.
std::vector<float> Values(const Matrix& matrix) {
  std::vector<float> values(matrix.bytes.size() / sizeof(float));
  std::memcpy(values.data(), matrix.bytes.data(), matrix.bytes.size());
  return values;
}

void ScaleOutput(const std::vector<float>& of_channel, Layer* layer) {
  std::vector<float> o = Values(layer->weights.o);
  for (size_t i = 0; i < o.size(); ++i) o[i] *= of_channel[i % kMixed];
  layer->weights.o = layer->F32(o, kHidden, kMixed);
}

// A head's query rows and then as many gate rows. Gates are constants, unless `gates` says what
// their rows are.
void FuseGate(const std::vector<float>& gate_bias, const std::vector<float>& gates, Layer* layer) {
  const std::vector<float> q = Values(layer->weights.q);
  const std::vector<float> q_bias = layer->weights.q_bias;
  std::vector<float> fused;
  std::vector<float> bias;
  constexpr ptrdiff_t kHeadRows = ptrdiff_t{kHeadDim} * kHidden;
  for (ptrdiff_t head = 0; head < kHeads; ++head) {
    for (const auto* rows : {&q, &gates}) {
      fused.insert(fused.end(), rows->begin() + head * kHeadRows,
                   rows->begin() + (head + 1) * kHeadRows);
    }
    for (const auto* part : {&q_bias, &gate_bias}) {
      bias.insert(bias.end(), part->begin() + head * kHeadDim,
                  part->begin() + (head + 1) * kHeadDim);
    }
  }
  layer->weights.gate_in_q = true;
  layer->weights.q = layer->F32(fused, 2 * kMixed, kHidden);
  layer->weights.q_bias = bias;
}

void ExpectNear(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  float largest = 1.0f;
  for (const float value : want) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-6f * largest) << i;
}

TEST(AttentionGate, RowsOfTheQueryProjectionMultiplyByTheirSigmoid) {
  const std::vector<float> gate_bias = RandomFloats(kMixed, 9, 2.0f);
  std::vector<float> factors;
  for (const float g : gate_bias) factors.push_back(1.0f / (1.0f + std::exp(-g)));
  Layer gated;
  FuseGate(gate_bias, std::vector<float>(kMixed * kHidden), &gated);
  Layer plain;
  ScaleOutput(factors, &plain);
  ExpectNear(gated.Run(), plain.Run());
  // A mask's dead heads are as if their columns of `o` were zero.
  LayerMask mask;
  mask.heads = {1, 4, 5};
  for (size_t i = 0; i < factors.size(); ++i) {
    if (std::find(mask.heads.begin(), mask.heads.end(), i / kHeadDim) == mask.heads.end()) {
      factors[i] = 0.0f;
    }
  }
  Layer dead;
  ScaleOutput(factors, &dead);
  ExpectNear(gated.Run(mask), dead.Run());
}

TEST(AttentionGate, GateOfTheQueryProjectionDependsOnTheToken) {
  Layer gated;
  FuseGate(std::vector<float>(kMixed), RandomFloats(kMixed * kHidden, 10), &gated);
  Layer half;
  ScaleOutput(std::vector<float>(kMixed, 0.5f), &half);
  const std::vector<float> got = gated.Run();
  const std::vector<float> other = half.Run();
  for (size_t token = 0; token < kTokens; ++token) {
    EXPECT_GT(std::abs(got[token * kHidden] - other[token * kHidden]), 1e-3f) << token;
  }
  EXPECT_EQ(got, gated.Run({}, 1));
  EXPECT_EQ(got, gated.Run({}, 3));
}

// One gate a head is the same as that gate for each of its channels; and both take the softplus.
TEST(AttentionGate, RowsOfTheirOwnMultiplyByTheirSoftplus) {
  const std::vector<float> rows = RandomFloats(kHeads * kHidden, 11);
  Layer of_heads;
  of_heads.weights.output_gate = of_heads.F32(rows, kHeads, kHidden);
  std::vector<float> repeated;
  for (size_t row = 0; row < kMixed; ++row) {
    const auto first = rows.begin() + static_cast<ptrdiff_t>(row / kHeadDim * kHidden);
    repeated.insert(repeated.end(), first, first + kHidden);
  }
  Layer of_channels;
  of_channels.weights.output_gate = of_channels.F32(repeated, kMixed, kHidden);
  ExpectNear(of_heads.Run(), of_channels.Run());
  EXPECT_EQ(of_heads.Run(), of_heads.Run({}, 1));
  LayerMask mask;
  mask.heads = {0, 3};
  ExpectNear(of_heads.Run(mask), of_channels.Run(mask));

  Layer zero;
  zero.weights.output_gate = zero.F32(std::vector<float>(kHeads * kHidden), kHeads, kHidden);
  Layer plain;
  ScaleOutput(std::vector<float>(kMixed, std::log(2.0f)), &plain);
  ExpectNear(zero.Run(), plain.Run());
}

// A sink far below the scores changes nothing, one far above them leaves nothing of its head.
TEST(AttentionSinks, EachHeadHasItsOwn) {
  Layer plain;
  Layer low;
  low.weights.sinks.assign(kHeads, -200.0f);
  EXPECT_EQ(low.Run(), plain.Run());
  Layer some;
  some.weights.sinks.assign(kHeads, -200.0f);
  some.weights.sinks[2] = some.weights.sinks[5] = 200.0f;
  Layer dead;
  std::vector<float> factors(kMixed, 1.0f);
  for (size_t i = 0; i < kHeadDim; ++i) {
    factors[2 * kHeadDim + i] = factors[5 * kHeadDim + i] = 0.0f;
  }
  ScaleOutput(factors, &dead);
  ExpectNear(some.Run(), dead.Run());
  EXPECT_EQ(some.Run(), some.Run({}, 1));
}

}  // namespace
}  // namespace moewe::model
