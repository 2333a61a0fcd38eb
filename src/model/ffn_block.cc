#include "model/ffn_block.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <numeric>

#include "kernels/vector_ops.h"
#include "model/router.h"

namespace moewe::model {

namespace {

// The elements of `all` at `indices`; all of them if there are none.
std::vector<float> Gather(const std::vector<float>& all, const std::vector<uint32_t>& indices) {
  if (all.empty() || indices.empty()) return all;
  std::vector<float> gathered;
  for (uint32_t i : indices) gathered.push_back(all[i]);
  return gathered;
}

}  // namespace

MoeBlock::MoeBlock(int layer, const ModelConfig& config, const Weights& all,
                   const MoeWeights& weights, const LayerMask& mask,
                   const formats::Checkpoint& checkpoint, bool verify, MoeScratch* scratch)
    : layer_(layer),
      config_(config),
      all_(all),
      weights_(weights),
      checkpoint_(checkpoint),
      scratch_(*scratch),
      routable_(mask.experts),
      bias_(Gather(weights.expert_bias, mask.experts)),
      top_k_(std::min<size_t>(config.moe.top_k,
                              routable_.empty() ? weights.experts.size() : routable_.size())),
      unverified_(verify ? weights.experts.size() : 0, true) {}

void MoeBlock::Run(const Step& step, const float* x, float* out) {
  ChooseExperts(step, x);
  RunExperts(step, x);
  ForRows(step.compute->pool(), step.rows.size(), [&](size_t row) { Combine(step, row, out); });
}

void MoeBlock::ChooseExperts(const Step& step, const float* x) {
  const size_t n = step.rows.size();
  const size_t experts = weights_.experts.size();
  float* logits = scratch_.logits.Need(n * experts);
  ids_ = scratch_.ids.Need(n * top_k_);
  chosen_ = scratch_.weights.Need(n * top_k_);
  shared_gate_ = scratch_.shared_gate.Need(n);
  const std::array<kernels::Projection, 2> projections{{
      {weights_.router, nullptr, logits, experts, routable_},
      {weights_.shared_gate, nullptr, shared_gate_, 1},
  }};
  step.compute->Project(std::span(projections).first(weights_.shared_gate.empty() ? 1 : 2), x, n,
                        config_.hidden_size);
  ForRows(step.compute->pool(), n, [&](size_t row) {
    // Routable logits move to the front, so that this is the routing of a model that has no other
    // experts.
    float* scores = logits + row * experts;
    for (size_t i = 0; i < routable_.size(); ++i) scores[i] = scores[routable_[i]];
    uint32_t* ids = ids_ + row * top_k_;
    Route(config_.moe, {scores, routable_.empty() ? experts : routable_.size()}, bias_,
          {ids, top_k_}, {chosen_ + row * top_k_, top_k_});
    if (routable_.empty()) return;
    for (size_t i = 0; i < top_k_; ++i) ids[i] = routable_[ids[i]];
  });
  if (step.observer != nullptr) step.observer->OnRouter(layer_, ids_, chosen_, n, top_k_);
}

// Groups the batch's (row, rank) pairs by expert, ascending; rank r of row i lands in row i * top_k
// + r of expert_out, and what the shared expert makes of row i behind all pairs.
void MoeBlock::RunExperts(const Step& step, const float* x) {
  const size_t n = step.rows.size();
  const size_t pairs = n * top_k_;
  const size_t experts = weights_.experts.size();
  size_t* begin = scratch_.begin.Need(experts + 1);
  uint32_t* token_rows = scratch_.token_rows.Need(pairs + n);
  uint32_t* out_rows = scratch_.out_rows.Need(pairs + n);
  std::fill_n(begin, experts + 1, size_t{0});
  for (size_t i = 0; i < pairs; ++i) ++begin[ids_[i] + 1];
  for (size_t e = 0; e < experts; ++e) begin[e + 1] += begin[e];
  // begin[e] moves to the end of e's pairs, which is where e + 1 began.
  for (size_t i = 0; i < pairs; ++i) {
    const size_t place = begin[ids_[i]]++;
    token_rows[place] = static_cast<uint32_t>(i / top_k_);
    out_rows[place] = static_cast<uint32_t>(i);
  }
  kernels::ExpertWork* work = scratch_.work.Need(experts + 1);
  size_t used = 0;
  if (!weights_.shared.gate.empty()) {
    std::iota(token_rows + pairs, token_rows + pairs + n, 0u);
    std::iota(out_rows + pairs, out_rows + pairs + n, static_cast<uint32_t>(pairs));
    work[used++] = {weights_.shared, {token_rows + pairs, n}, {out_rows + pairs, n}};
  }
  uint32_t* fresh = scratch_.fresh.Need(experts);
  size_t num_fresh = 0;
  for (uint32_t e = 0; e < experts; ++e) {
    const size_t first = e == 0 ? 0 : begin[e - 1];
    const size_t count = begin[e] - first;
    if (count == 0) continue;
    if (!unverified_.empty() && unverified_[e]) fresh[num_fresh++] = e;
    work[used++] = {weights_.experts[e], {token_rows + first, count}, {out_rows + first, count}};
  }
  if (num_fresh > 0) VerifyExperts(step.compute->pool(), {fresh, num_fresh});
  expert_out_ = scratch_.expert_out.Need((pairs + n) * config_.hidden_size);
  step.compute->RoutedFfn({work, used}, config_.gate_function, x, config_.hidden_size, expert_out_);
}

void MoeBlock::Combine(const Step& step, size_t row, float* out) const {
  const size_t hidden = config_.hidden_size;
  const float* shared_out = expert_out_ + step.rows.size() * top_k_ * hidden;
  float* sum = out + row * hidden;
  std::fill_n(sum, hidden, 0.0f);
  for (size_t rank = row * top_k_; rank < (row + 1) * top_k_; ++rank) {
    kernels::AddScaled(sum, expert_out_ + rank * hidden, chosen_[rank], hidden);
  }
  if (weights_.shared.gate.empty()) return;
  const float weight =
      weights_.shared_gate.empty() ? 1.0f : 1.0f / (1.0f + std::exp(-shared_gate_[row]));
  kernels::AddScaled(sum, shared_out + row * hidden, weight, hidden);
}

void MoeBlock::VerifyExperts(ThreadPool& pool, std::span<const uint32_t> experts) {
  constexpr size_t kMatrices = 3;
  const auto tensor = [&](size_t i) -> const formats::TensorView& {
    return all_.tensors[weights_.expert_tensors[experts[i / kMatrices]][i % kMatrices]];
  };
  std::atomic<bool> intact{true};
  pool.Run(experts.size() * kMatrices, [&](size_t i, int) {
    if (!HasStoredHash(tensor(i))) intact = false;
  });
  if (!intact) {  // once more, for the error: tasks must not throw
    for (size_t i = 0; i < experts.size() * kMatrices; ++i) VerifyTensor(checkpoint_, tensor(i));
  }
  for (const uint32_t expert : experts) unverified_[expert] = false;
}

}  // namespace moewe::model
