#include "model/attention_block.h"

#include <algorithm>
#include <array>

#include "kernels/attention.h"
#include "kernels/vector_ops.h"

namespace moewe::model {
namespace {

const float* OrNull(const std::vector<float>& v) { return v.empty() ? nullptr : v.data(); }

// One norm over all heads together, or one a head, by the weight's size. Heads are `pitch` floats
// apart.
void NormHeads(const ModelConfig& config, const std::vector<float>& weight, size_t width,
               size_t head_dim, size_t pitch, const std::vector<uint32_t>& heads, float* x) {
  if (weight.empty()) return;
  const auto norm = [&](float* group, size_t size) {
    kernels::RmsNorm(group, weight.data(), config.norm_weight_offset, config.rms_norm_eps, size,
                     group);
  };
  if (weight.size() == width) {
    norm(x, width);
  } else {
    for (const uint32_t head : heads) norm(x + head * pitch, head_dim);
  }
}

}  // namespace

AttentionBlock::AttentionBlock(int visit, const ModelConfig& config,
                               const AttentionWeights& weights, const LayerMask& mask,
                               AttentionScratch* scratch)
    : visit_(visit),
      config_(config),
      shape_(config.LayerOfVisit(static_cast<uint32_t>(visit))),
      weights_(weights),
      scratch_(*scratch),
      mix_width_(size_t{shape_.num_heads} * shape_.head_dim),
      kv_width_(size_t{shape_.num_kv_heads} * shape_.head_dim),
      q_pitch_(size_t{shape_.head_dim} * (weights.gate_in_q ? 2 : 1)),
      q_width_(shape_.num_heads * q_pitch_),
      no_heads_(mask.no_heads) {
  ChooseHeads(mask);
}

void AttentionBlock::ChooseHeads(const LayerMask& mask) {
  heads_ = mask.heads;
  if (heads_.empty()) {
    for (uint32_t h = 0; h < shape_.num_heads; ++h) heads_.push_back(h);
  }
  for (const uint32_t head : heads_) {
    const uint32_t kv_head = head / (shape_.num_heads / shape_.num_kv_heads);
    const bool new_kv_head = kv_heads_.empty() || kv_heads_.back() != kv_head;
    if (new_kv_head) kv_heads_.push_back(kv_head);
    if (new_kv_head || head_groups_.back().count == kernels::kAttendTogether) {
      head_groups_.push_back({kv_head, {}, 0});
    }
    HeadGroup& group = head_groups_.back();
    group.heads[group.count++] = head;
  }
  const auto rows = [&](const std::vector<uint32_t>& heads, uint32_t all, size_t of_head,
                        bool whole) {
    std::vector<uint32_t> result;
    if (whole || heads.size() == all) return result;
    for (const uint32_t head : heads) {
      for (size_t i = 0; i < of_head; ++i) {
        result.push_back(static_cast<uint32_t>(head * of_head + i));
      }
    }
    return result;
  };
  // A norm over all heads together needs them all.
  const auto joint_norm = [&](const std::vector<float>& norm, size_t width) {
    return norm.size() == width && width != shape_.head_dim;
  };
  q_rows_ = rows(heads_, shape_.num_heads, q_pitch_, joint_norm(weights_.q_norm, mix_width_));
  kv_rows_ =
      rows(kv_heads_, shape_.num_kv_heads, shape_.head_dim, joint_norm(weights_.k_norm, kv_width_));
  gate_rows_ = rows(heads_, shape_.num_heads, weights_.output_gate.rows / shape_.num_heads, false);
}

void AttentionBlock::Run(const Step& step, const float* x, float* out) {
  const size_t n = step.rows.size();
  ThreadPool& pool = step.compute->pool();
  if (no_heads_) {
    for (size_t row = 0; row < n; ++row) {
      float* y = out + row * config_.hidden_size;
      std::fill_n(y, config_.hidden_size, 0.0f);
      std::copy(weights_.o_bias.begin(), weights_.o_bias.end(), y);
    }
    return;
  }
  Project(step, x);
  ForRows(pool, n, [&](size_t row) { PrepareRow(step, row); });
  CollectBlocks(step);
  mixed_ = scratch_.mixed.Need(n * mix_width_);
  if (heads_.size() != shape_.num_heads) std::fill_n(mixed_, n * mix_width_, 0.0f);
  const size_t groups = head_groups_.size();
  pool.Run(n * groups, [&](size_t task, int) {
    AttendHeads(step, task / groups, head_groups_[task % groups]);
  });
  const kernels::Projection o{weights_.o, OrNull(weights_.o_bias), out, config_.hidden_size};
  step.compute->Project({&o, 1}, mixed_, n, mix_width_);
}

void AttentionBlock::Project(const Step& step, const float* x) {
  const size_t n = step.rows.size();
  q_ = scratch_.q.Need(n * q_width_);
  k_ = scratch_.k.Need(n * kv_width_);
  v_ = scratch_.v.Need(n * kv_width_);
  const size_t gates = weights_.output_gate.rows;
  gate_ = scratch_.gate.Need(n * gates);
  const std::array<kernels::Projection, 4> projections{{
      {weights_.q, OrNull(weights_.q_bias), q_, q_width_, q_rows_},
      {weights_.k, OrNull(weights_.k_bias), k_, kv_width_, kv_rows_},
      {weights_.v, OrNull(weights_.v_bias), v_, kv_width_, kv_rows_},
      {weights_.output_gate, nullptr, gate_, gates, gate_rows_},
  }};
  step.compute->Project(std::span(projections).first(gates == 0 ? 3 : 4), x, n,
                        config_.hidden_size);
}

void AttentionBlock::PrepareRow(const Step& step, size_t row) {
  const size_t head_dim = shape_.head_dim;
  float* q = q_ + row * q_width_;
  float* k = k_ + row * kv_width_;
  NormHeads(config_, weights_.q_norm, mix_width_, head_dim, q_pitch_, heads_, q);
  NormHeads(config_, weights_.k_norm, kv_width_, head_dim, head_dim, kv_heads_, k);
  const RopeTable& rope = step.ropes[shape_.rope];
  if (rope.pairs() > 0) {
    const float* cos = rope.Cos(row);
    const float* sin = rope.Sin(row);
    const auto rotate = [&](float* x, size_t pitch, const std::vector<uint32_t>& heads) {
      for (const uint32_t head : heads) {
        kernels::ApplyRope(x + head * pitch, cos, sin, rope.pairs(), rope.interleaved());
      }
    };
    rotate(q, q_pitch_, heads_);
    rotate(k, head_dim, kv_heads_);
  }
  const StepRow place = step.rows[row];
  Sequence& sequence = *step.sequences[place.chunk];
  KvPool& cache = sequence.pool();
  const BlockId block = sequence.blocks()[place.position / kBlockTokens];
  const size_t slot = place.position % kBlockTokens;
  for (const uint32_t h : kv_heads_) {
    const size_t offset = h * head_dim;
    const int head = static_cast<int>(h);
    StoreCachedRow(cache.type(), k + offset, head_dim, cache.Keys(block, visit_, head), slot);
    StoreCachedRow(cache.type(), v_ + row * kv_width_ + offset, head_dim,
                   cache.Values(block, visit_, head), slot);
  }
}

void AttentionBlock::CollectBlocks(const Step& step) {
  const size_t chunks = step.sequences.size();
  first_block_ = scratch_.first_block.Need(chunks);
  size_t total = 0;
  for (size_t c = 0; c < chunks; ++c) {
    first_block_[c] = total;
    total += step.sequences[c]->blocks().size() * shape_.num_kv_heads;
  }
  key_blocks_ = scratch_.key_blocks.Need(total);
  value_blocks_ = scratch_.value_blocks.Need(total);
  size_t next = 0;
  for (Sequence* sequence : step.sequences) {
    for (uint32_t h = 0; h < shape_.num_kv_heads; ++h) {
      for (BlockId block : sequence->blocks()) {
        key_blocks_[next] = sequence->pool().Keys(block, visit_, static_cast<int>(h));
        value_blocks_[next] = sequence->pool().Values(block, visit_, static_cast<int>(h));
        ++next;
      }
    }
  }
}

void AttentionBlock::AttendHeads(const Step& step, size_t row, const HeadGroup& group) const {
  const StepRow place = step.rows[row];
  const Sequence& sequence = *step.sequences[place.chunk];
  const size_t blocks = sequence.blocks().size();
  const size_t first = first_block_[place.chunk] + group.kv_head * blocks;
  kernels::KvBlocks keys;
  keys.blocks = {key_blocks_ + first, blocks};
  keys.block_tokens = kBlockTokens;
  keys.row_stride = shape_.head_dim;
  keys.type = sequence.pool().type();
  kernels::KvBlocks values = keys;
  values.blocks = {value_blocks_ + first, blocks};

  kernels::AttentionParams params;
  params.head_dim = shape_.head_dim;
  params.value_dim = shape_.head_dim;
  params.scale = config_.attention_scale;
  params.soft_cap = config_.attn_soft_cap;
  const size_t end = size_t{place.position} + 1;
  const size_t window = shape_.sliding_window;
  const size_t first_position = config_.FirstPosition(static_cast<uint32_t>(visit_));
  const size_t begin =
      window != 0 && end > window ? end - window : std::min<size_t>(first_position, place.position);
  std::array<const float*, kernels::kAttendTogether> q{};
  std::array<float*, kernels::kAttendTogether> out{};
  std::array<float, kernels::kAttendTogether> sinks{};
  for (size_t i = 0; i < group.count; ++i) {
    const size_t head = group.heads[i];
    q[i] = q_ + row * q_width_ + head * q_pitch_;
    out[i] = mixed_ + row * mix_width_ + head * shape_.head_dim;
    if (!weights_.sinks.empty()) sinks[i] = weights_.sinks[head];
  }
  if (!weights_.sinks.empty()) params.sinks = sinks.data();
  kernels::Attend(params, {q.data(), group.count}, keys, values, begin, end, out.data());
  for (size_t i = 0; i < group.count; ++i) GateOutput(row, group.heads[i], out[i]);
}

void AttentionBlock::GateOutput(size_t row, uint32_t head, float* mixed) const {
  const size_t head_dim = shape_.head_dim;
  if (weights_.gate_in_q) {
    const float* gate = q_ + row * q_width_ + head * q_pitch_ + head_dim;
    return kernels::TimesGate(kernels::OutputGate::kSigmoid, mixed, gate, head_dim);
  }
  if (weights_.output_gate.empty()) return;
  const size_t gates = weights_.output_gate.rows / shape_.num_heads;  // of a head
  const float* gate = gate_ + (row * shape_.num_heads + head) * gates;
  if (gates == head_dim) {
    return kernels::TimesGate(kernels::OutputGate::kSoftplus, mixed, gate, head_dim);
  }
  float factor = 1.0f;
  kernels::TimesGate(kernels::OutputGate::kSoftplus, &factor, gate, 1);
  for (size_t i = 0; i < head_dim; ++i) mixed[i] *= factor;
}

}  // namespace moewe::model
