#include "model/mla_block.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/attention.h"
#include "kernels/vector_ops.h"

namespace moewe::model {
namespace {

// Of the two inner norms, whatever the config says, as the reference has it.
constexpr float kInnerNormEps = 1e-6f;

}  // namespace

uint64_t MlaScratch::FloatsPerRow(const MlaConfig& mla, uint64_t heads) {
  const uint64_t of_head = mla.qk_nope_head_dim + mla.qk_rope_head_dim + mla.key_width() +
                           mla.kv_lora_rank + mla.v_head_dim + 1;
  return mla.q_lora_rank + mla.key_width() + heads * of_head;
}

uint64_t MlaScratch::FloatsOnce(const MlaConfig& mla, uint64_t heads) {
  return heads * (mla.qk_nope_head_dim + mla.v_head_dim) * mla.kv_lora_rank;
}

MlaBlock::MlaBlock(int visit, const ModelConfig& config, const MlaWeights& weights,
                   const LayerMask& mask, MlaScratch* scratch)
    : visit_(visit),
      config_(config),
      shape_(config.LayerOfVisit(static_cast<uint32_t>(visit))),
      mla_(config.mla),
      weights_(weights),
      scratch_(*scratch),
      q_width_(size_t{shape_.num_heads} * shape_.head_dim),
      key_width_(mla_.key_width()),
      head_rows_(size_t{mla_.qk_nope_head_dim} + mla_.v_head_dim),
      q_nope_(mla_.rope_first ? mla_.qk_rope_head_dim : 0),
      q_rope_(mla_.rope_first ? 0 : mla_.qk_nope_head_dim),
      no_heads_(mask.no_heads),
      heads_(mask.heads) {
  if (!heads_.empty()) return;
  for (uint32_t head = 0; head < shape_.num_heads; ++head) heads_.push_back(head);
}

void MlaBlock::Run(const Step& step, const float* x, float* out) {
  const size_t n = step.rows.size();
  if (no_heads_) {
    std::fill_n(out, n * config_.hidden_size, 0.0f);
    return;
  }
  ThreadPool& pool = step.compute->pool();
  DecodeKvUp(pool);
  Project(step, x);
  ForRows(pool, n, [&](size_t row) { PrepareRow(step, row); });
  CollectBlocks(step);
  const size_t heads = shape_.num_heads;
  latent_q_ = scratch_.latent_q.Need(n * heads * key_width_);
  latent_mix_ = scratch_.latent_mix.Need(n * heads * mla_.kv_lora_rank);
  const size_t mixed_width = heads * mla_.v_head_dim;
  mixed_ = scratch_.mixed.Need(n * mixed_width);
  if (heads_.size() != heads) std::fill_n(mixed_, n * mixed_width, 0.0f);
  const size_t groups = (heads_.size() - 1) / kernels::kAttendTogether + 1;
  pool.Run(n * groups, [&](size_t task, int) {
    AttendHeads(step, task / groups, task % groups * kernels::kAttendTogether);
  });
  const kernels::Projection o{weights_.o, nullptr, out, config_.hidden_size};
  step.compute->Project({&o, 1}, mixed_, n, mixed_width);
}

// For the keys' part the products run over rows, which no kernel on stored layouts does; in f32
// both parts do without int8 activations, of vectors that no bound is known for.
void MlaBlock::DecodeKvUp(ThreadPool& pool) {
  const size_t rank = mla_.kv_lora_rank;
  kv_up_ = scratch_.kv_up.Need(shape_.num_heads * head_rows_ * rank);
  pool.Run(heads_.size(), [&](size_t task, int) {
    const size_t first = heads_[task] * head_rows_;
    for (size_t row = first; row < first + head_rows_; ++row) {
      kernels::Compute::DecodeRow(weights_.kv_up, row, kv_up_ + row * rank);
    }
  });
}

void MlaBlock::Project(const Step& step, const float* x) {
  const size_t n = step.rows.size();
  q_ = scratch_.q.Need(n * q_width_);
  k_ = scratch_.k.Need(n * key_width_);
  const kernels::Projection k{weights_.kv_down, nullptr, k_, key_width_};
  if (!weights_.gate.empty()) {
    gate_ = scratch_.gate.Need(n * shape_.num_heads);
    const kernels::Projection gate{weights_.gate, nullptr, gate_, shape_.num_heads};
    step.compute->Project({&gate, 1}, x, n, config_.hidden_size);
  }
  if (mla_.q_lora_rank == 0) {
    const std::array<kernels::Projection, 2> both{{{weights_.q, nullptr, q_, q_width_}, k}};
    step.compute->Project(both, x, n, config_.hidden_size);
    return;
  }
  const size_t rank = mla_.q_lora_rank;
  float* down = scratch_.q_down.Need(n * rank);
  const std::array<kernels::Projection, 2> both{{{weights_.q_down, nullptr, down, rank}, k}};
  step.compute->Project(both, x, n, config_.hidden_size);
  ForRows(step.compute->pool(), n, [&](size_t row) {
    float* of_row = down + row * rank;
    kernels::RmsNorm(of_row, weights_.q_down_norm.data(), config_.norm_weight_offset, kInnerNormEps,
                     rank, of_row);
  });
  const kernels::Projection q{weights_.q_up, nullptr, q_, q_width_};
  step.compute->Project({&q, 1}, down, n, rank);
}

void MlaBlock::PrepareRow(const Step& step, size_t row) {
  float* k = k_ + row * key_width_;
  kernels::RmsNorm(k, weights_.kv_down_norm.data(), config_.norm_weight_offset, kInnerNormEps,
                   mla_.kv_lora_rank, k);
  const RopeTable& rope = step.ropes[shape_.rope];
  if (rope.pairs() > 0) {
    const auto rotate = [&](float* x) {
      kernels::ApplyRope(x, rope.Cos(row), rope.Sin(row), rope.pairs(), rope.interleaved());
    };
    rotate(k + mla_.kv_lora_rank);
    for (const uint32_t head : heads_) {
      rotate(q_ + row * q_width_ + head * shape_.head_dim + q_rope_);
    }
  }
  const StepRow place = step.rows[row];
  Sequence& sequence = *step.sequences[place.chunk];
  KvPool& cache = sequence.pool();
  const BlockId block = sequence.blocks()[place.position / kBlockTokens];
  StoreCachedRow(cache.type(), k, key_width_, cache.Keys(block, visit_, 0),
                 place.position % kBlockTokens);
}

void MlaBlock::CollectBlocks(const Step& step) {
  const size_t chunks = step.sequences.size();
  first_block_ = scratch_.first_block.Need(chunks);
  size_t total = 0;
  for (size_t c = 0; c < chunks; ++c) {
    first_block_[c] = total;
    total += step.sequences[c]->blocks().size();
  }
  blocks_ = scratch_.blocks.Need(total);
  size_t next = 0;
  for (Sequence* sequence : step.sequences) {
    for (const BlockId block : sequence->blocks()) {
      blocks_[next++] = sequence->pool().Keys(block, visit_, 0);
    }
  }
}

void MlaBlock::AttendHeads(const Step& step, size_t row, size_t first) {
  const StepRow place = step.rows[row];
  const Sequence& sequence = *step.sequences[place.chunk];
  kernels::KvBlocks latents;
  latents.blocks = {blocks_ + first_block_[place.chunk], sequence.blocks().size()};
  latents.block_tokens = kBlockTokens;
  latents.row_stride = static_cast<uint32_t>(key_width_);
  latents.type = sequence.pool().type();
  kernels::AttentionParams params;
  params.head_dim = static_cast<uint32_t>(key_width_);
  params.value_dim = mla_.kv_lora_rank;
  params.scale = config_.attention_scale;
  params.soft_cap = config_.attn_soft_cap;

  const size_t rank = mla_.kv_lora_rank;
  const size_t nope = mla_.qk_nope_head_dim;
  const size_t count = std::min(kernels::kAttendTogether, heads_.size() - first);
  std::array<const float*, kernels::kAttendTogether> q{};
  std::array<float*, kernels::kAttendTogether> mix{};
  for (size_t i = 0; i < count; ++i) {
    const size_t head = heads_[first + i];
    const float* own = q_ + row * q_width_ + head * shape_.head_dim;
    float* latent = latent_q_ + (row * shape_.num_heads + head) * key_width_;
    const float* keys = kv_up_ + head * head_rows_ * rank;
    std::fill_n(latent, rank, 0.0f);
    for (size_t j = 0; j < nope; ++j)
      kernels::AddScaled(latent, keys + j * rank, own[q_nope_ + j], rank);
    std::memcpy(latent + rank, own + q_rope_, mla_.qk_rope_head_dim * sizeof(float));
    q[i] = latent;
    mix[i] = latent_mix_ + (row * shape_.num_heads + head) * rank;
  }
  const size_t begin =
      std::min(config_.FirstPosition(static_cast<uint32_t>(visit_)), place.position);
  kernels::Attend(params, {q.data(), count}, latents, latents, begin, size_t{place.position} + 1,
                  mix.data());
  for (size_t i = 0; i < count; ++i) {
    const size_t head = heads_[first + i];
    const float* values = kv_up_ + (head * head_rows_ + nope) * rank;
    float* out = mixed_ + (row * shape_.num_heads + head) * mla_.v_head_dim;
    for (size_t j = 0; j < mla_.v_head_dim; ++j) {
      out[j] = kernels::Dot(values + j * rank, mix[i], rank);
    }
    if (gate_ == nullptr) continue;
    const float gate = 1.0f / (1.0f + std::exp(-gate_[row * shape_.num_heads + head]));
    for (size_t j = 0; j < mla_.v_head_dim; ++j) out[j] *= gate;
  }
}

}  // namespace moewe::model
