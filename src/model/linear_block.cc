#include "model/linear_block.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/recurrent.h"
#include "kernels/vector_ops.h"

namespace moewe::model {
namespace {

// Under the root, beside a vector's sum of squares, as the references have it.
constexpr float kUnitEps = 1e-6f;

size_t Decays(const LinearConfig& linear, bool by_channel) {
  return by_channel ? linear.keys() : linear.value_heads;
}

// Of a projection that is fused, or of the matrices that a gate or a decay is made through.
size_t FusedWidth(const LinearConfig& linear) {
  const size_t fused = size_t{linear.channels()} + linear.values() + 2 * linear.value_heads;
  return std::max<size_t>(fused, linear.keys());
}

}  // namespace

uint64_t LinearScratch::FloatsPerRow(const LinearConfig& linear) {
  return FusedWidth(linear) + 2 * linear.channels() + Decays(linear, true) +
         2 * linear.value_heads + 2 * linear.values();
}

LinearBlock::LinearBlock(int visit, const ModelConfig& config, const LinearWeights& weights,
                         LinearScratch* scratch)
    : visit_(visit),
      config_(config),
      shape_(config.linear),
      weights_(weights),
      scratch_(*scratch),
      is_kda_(config.layers[static_cast<size_t>(visit) % config.num_layers].mixer ==
              MixerKind::kKda),
      decays_(Decays(shape_, is_kda_)),
      conv_(visit, shape_.conv_taps, shape_.channels()),
      key_scale_(shape_.key_dim, 1.0f / std::sqrt(static_cast<float>(shape_.key_dim))),
      query_scale_(shape_.key_dim, 1.0f / static_cast<float>(shape_.key_dim)) {}

void LinearBlock::Run(const Step& step, const float* x, float* out) {
  const size_t n = step.rows.size();
  const size_t values = shape_.values();
  ThreadPool& pool = step.compute->pool();
  raw_ = scratch_.raw.Need(n * shape_.channels());
  convolved_ = scratch_.convolved.Need(n * shape_.channels());
  decay_ = scratch_.decay.Need(n * decays_);
  beta_ = scratch_.beta.Need(n * shape_.value_heads);
  gate_ = scratch_.gate.Need(n * values);
  mixed_ = scratch_.mixed.Need(n * values);
  Project(step, x);
  ForRows(pool, n, [&](size_t row) { PrepareRow(step, row); });
  for (size_t chunk = 0; chunk < step.sequences.size(); ++chunk) {
    if (step.first_rows[chunk] != step.first_rows[chunk + 1]) conv_.Keep(step, raw_, chunk);
  }
  const size_t heads = shape_.value_heads;
  pool.Run(step.sequences.size() * heads,
           [&](size_t task, int) { RunHead(step, task / heads, task % heads); });
  const kernels::Projection projection{weights_.out, nullptr, out, config_.hidden_size};
  step.compute->Project({&projection, 1}, is_kda_ ? mixed_ : gate_, n, values);
}

void LinearBlock::Project(const Step& step, const float* x) {
  const size_t n = step.rows.size();
  const size_t hidden = config_.hidden_size;
  const size_t channels = shape_.channels();
  const size_t values = shape_.values();
  const size_t heads = shape_.value_heads;
  if (!weights_.qkvz.empty()) {
    const size_t width = channels + values;
    fused_ = scratch_.fused.Need(n * (width + 2 * heads));
    float* ba = fused_ + n * width;
    const std::array<kernels::Projection, 2> both{
        {{weights_.qkvz, nullptr, fused_, width}, {weights_.ba, nullptr, ba, 2 * heads}}};
    step.compute->Project(both, x, n, hidden);
    ForRows(step.compute->pool(), n, [&](size_t row) { Unfuse(row, ba + row * 2 * heads); });
    return;
  }
  std::array<kernels::Projection, 7> all;
  size_t count = 0;
  const auto add = [&](const kernels::Matrix& matrix, float* to, size_t width) {
    if (!matrix.empty()) all[count++] = {matrix, nullptr, to, width};
  };
  add(weights_.qkv, raw_, channels);
  add(weights_.q, raw_, channels);
  add(weights_.k, raw_ + shape_.keys(), channels);
  add(weights_.v, raw_ + 2 * size_t{shape_.keys()}, channels);
  add(weights_.gate, gate_, values);
  add(weights_.decay, decay_, decays_);
  add(weights_.beta, beta_, heads);
  step.compute->Project({all.data(), count}, x, n, hidden);
  if (weights_.gate.empty()) ProjectTwice(step, x, weights_.gate_down, weights_.gate_up, gate_);
  if (weights_.decay.empty()) {
    ProjectTwice(step, x, weights_.decay_down, weights_.decay_up, decay_);
  }
}

void LinearBlock::ProjectTwice(const Step& step, const float* x, const kernels::Matrix& down,
                               const kernels::Matrix& up, float* out) {
  const size_t n = step.rows.size();
  fused_ = scratch_.fused.Need(n * down.rows);
  const kernels::Projection first{down, nullptr, fused_, down.rows};
  step.compute->Project({&first, 1}, x, n, config_.hidden_size);
  const kernels::Projection second{up, nullptr, out, up.rows};
  step.compute->Project({&second, 1}, fused_, n, down.rows);
}

// Each key head has its query, its key, its values and their gates; and their betas and decays.
void LinearBlock::Unfuse(size_t row, const float* ba) {
  const size_t key_dim = shape_.key_dim;
  const size_t ratio = shape_.value_heads / shape_.key_heads;
  const size_t own_values = ratio * shape_.value_dim;
  const float* fused = fused_ + row * (shape_.channels() + shape_.values());
  float* raw = raw_ + row * shape_.channels();
  for (size_t head = 0; head < shape_.key_heads; ++head) {
    const auto take = [&](size_t count, float* to) {
      std::copy_n(fused, count, to);
      fused += count;
    };
    take(key_dim, raw + head * key_dim);
    take(key_dim, raw + shape_.keys() + head * key_dim);
    take(own_values, raw + 2 * size_t{shape_.keys()} + head * own_values);
    take(own_values, gate_ + row * shape_.values() + head * own_values);
    std::copy_n(ba + head * 2 * ratio, ratio, beta_ + row * shape_.value_heads + head * ratio);
    std::copy_n(ba + head * 2 * ratio + ratio, ratio, decay_ + row * decays_ + head * ratio);
  }
}

void LinearBlock::PrepareRow(const Step& step, size_t row) {
  const size_t key_dim = shape_.key_dim;
  float* qkv = convolved_ + row * shape_.channels();
  ConvState::Inputs inputs;
  kernels::CausalConv(conv_.Collect(step, raw_, row, &inputs), weights_.conv.data(),
                      shape_.channels(), qkv);
  kernels::Silu(qkv, shape_.channels());
  const float eps = kUnitEps / static_cast<float>(key_dim);
  for (size_t head = 0; head < shape_.key_heads; ++head) {
    float* query = qkv + head * key_dim;
    float* key = query + shape_.keys();
    kernels::RmsNorm(query, query_scale_.data(), 0.0f, eps, key_dim, query);
    kernels::RmsNorm(key, key_scale_.data(), 0.0f, eps, key_dim, key);
  }
  kernels::Decays(weights_.rate.data(), weights_.decay_bias.data(), shape_.least_log_decay, decays_,
                  decay_ + row * decays_);
  float* beta = beta_ + row * shape_.value_heads;
  for (size_t head = 0; head < shape_.value_heads; ++head) {
    beta[head] = 1.0f / (1.0f + std::exp(-beta[head]));
  }
}

void LinearBlock::RunHead(const Step& step, size_t chunk, size_t head) {
  const size_t first = step.first_rows[chunk];
  const size_t end = step.first_rows[chunk + 1];
  if (first == end) return;
  const size_t key_dim = shape_.key_dim;
  const size_t value_dim = shape_.value_dim;
  const size_t key_head = head / (shape_.value_heads / shape_.key_heads);
  const size_t place = conv_.floats() + head * key_dim * value_dim;
  const Sequence& sequence = *step.sequences[chunk];
  const float* before = sequence.State(visit_);
  float* state = sequence.NextState(visit_) + place;
  if (before == nullptr) {
    std::fill_n(state, key_dim * value_dim, 0.0f);
  } else {
    std::copy_n(before + place, key_dim * value_dim, state);
  }
  const auto run = [&](size_t from, size_t to) {
    const float* qkv = convolved_ + from * shape_.channels();
    kernels::DeltaTokens tokens;
    tokens.count = to - from;
    tokens.query = qkv + key_head * key_dim;
    tokens.key = tokens.query + shape_.keys();
    tokens.value = qkv + 2 * size_t{shape_.keys()} + head * value_dim;
    tokens.stride = shape_.channels();
    tokens.decays_by_channel = is_kda_;
    tokens.decay = decay_ + from * decays_ + (is_kda_ ? head * key_dim : head);
    tokens.decay_stride = decays_;
    tokens.beta = beta_ + from * shape_.value_heads + head;
    tokens.beta_stride = shape_.value_heads;
    tokens.out = mixed_ + from * shape_.values() + head * value_dim;
    tokens.out_stride = shape_.values();
    kernels::DeltaRule(tokens, key_dim, value_dim, state);
  };
  const size_t inside = sequence.rows_inside();
  if (inside > 0 && inside < end - first) {
    run(first, first + inside);
    std::copy_n(state, key_dim * value_dim, sequence.StateInside(visit_) + place);
    run(first + inside, end);
  } else {
    run(first, end);
  }
  for (size_t row = first; row < end; ++row) {
    float* mixed = mixed_ + row * shape_.values() + head * value_dim;
    kernels::RmsNorm(mixed, weights_.norm.data(), 0.0f, config_.rms_norm_eps, value_dim, mixed);
    float* gate = gate_ + row * shape_.values() + head * value_dim;
    if (is_kda_) {
      kernels::TimesGate(kernels::OutputGate::kSigmoid, mixed, gate, value_dim);
    } else {
      kernels::GateTimesUp(kernels::GateFunction::kSilu, gate, mixed, value_dim);
    }
  }
}

}  // namespace moewe::model
