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

// Rows of a step for whose next layer guesses are made: more ask for most of its experts anyway.
constexpr size_t kMostGuessed = 16;

// The elements of `all` at `indices`; all of them if there are none.
std::vector<float> Gather(const std::vector<float>& all, const std::vector<uint32_t>& indices) {
  if (all.empty() || indices.empty()) return all;
  std::vector<float> gathered;
  for (uint32_t i : indices) gathered.push_back(all[i]);
  return gathered;
}

}  // namespace

MoeBlock::MoeBlock(int visit, const ModelConfig& config, const Weights& all,
                   const LayerWeights& layer, const LayerMask& mask,
                   const formats::Checkpoint& checkpoint, bool verify, ExpertStream* stream,
                   MoeScratch* scratch)
    : visit_(visit),
      layer_(static_cast<uint32_t>(visit) % config.num_layers),
      config_(config),
      all_(all),
      layer_weights_(layer),
      weights_(layer.moe),
      checkpoint_(checkpoint),
      stream_(stream),
      scratch_(*scratch),
      routable_(mask.experts),
      bias_(Gather(weights_.expert_bias, mask.experts)),
      top_k_(std::min<size_t>(config.moe.top_k,
                              routable_.empty() ? weights_.experts.size() : routable_.size())),
      unverified_(verify && stream == nullptr ? weights_.experts.size() : 0, true) {}

void MoeBlock::Run(const Step& step, const float* x, float* out) {
  ChooseExperts(step, x);
  RunExperts(step, x);
  ForRows(step.compute->pool(), step.rows.size(), [&](size_t row) { Combine(step, row, out); });
}

void MoeBlock::ChooseExperts(const Step& step, const float* x) {
  const size_t n = step.rows.size();
  ids_ = scratch_.ids.Need(n * top_k_);
  chosen_ = scratch_.weights.Need(n * top_k_);
  shared_gate_ = scratch_.shared_gate.Need(n);
  ChooseFor(step, x, shared_gate_, ids_, chosen_);
  if (step.observer != nullptr) step.observer->OnRouter(visit_, ids_, chosen_, n, top_k_);
}

// `shared_gate`: null = not wanted.
void MoeBlock::ChooseFor(const Step& step, const float* x, float* shared_gate, uint32_t* all_ids,
                         float* weights) {
  const size_t n = step.rows.size();
  const size_t experts = weights_.experts.size();
  float* logits = scratch_.logits.Need(n * experts);
  const float* router_bias = weights_.router_bias.empty() ? nullptr : weights_.router_bias.data();
  const std::array<kernels::Projection, 2> projections{{
      {weights_.router, router_bias, logits, experts, routable_},
      {weights_.shared_gate, nullptr, shared_gate, 1},
  }};
  const bool gated = shared_gate != nullptr && !weights_.shared_gate.empty();
  step.compute->Project(std::span(projections).first(gated ? 2 : 1), x, n, config_.hidden_size);
  ForRows(step.compute->pool(), n, [&](size_t row) {
    // Routable logits move to the front, so that this is the routing of a model that has no other
    // experts.
    float* scores = logits + row * experts;
    for (size_t i = 0; i < routable_.size(); ++i) scores[i] = scores[routable_[i]];
    uint32_t* ids = all_ids + row * top_k_;
    Route(config_.moe, {scores, routable_.empty() ? experts : routable_.size()}, bias_,
          {ids, top_k_}, {weights + row * top_k_, top_k_});
    if (routable_.empty()) return;
    for (size_t i = 0; i < top_k_; ++i) ids[i] = routable_[ids[i]];
  });
}

// Groups the batch's (row, rank) pairs by expert, ascending; rank r of row i lands in row i * top_k
// + r of expert_out, and what the shared expert makes of row i behind all pairs.
void MoeBlock::GroupPairs(size_t n) {
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
  std::iota(token_rows + pairs, token_rows + pairs + n, 0u);
  std::iota(out_rows + pairs, out_rows + pairs + n, static_cast<uint32_t>(pairs));
  begin_ = begin;
  token_rows_ = token_rows;
  out_rows_ = out_rows;
}

// An expert's part of the step, with no rows if nothing goes to it.
kernels::ExpertWork MoeBlock::WorkOf(uint32_t expert, const kernels::FfnMatrices& ffn) const {
  const size_t first = expert == 0 ? 0 : begin_[expert - 1];
  const size_t count = begin_[expert] - first;
  return {ffn, {token_rows_ + first, count}, {out_rows_ + first, count}};
}

// Puts the shared expert, if there is one, at the front of the work; returns how many that are.
size_t MoeBlock::AddShared(size_t n) {
  kernels::ExpertWork* work = scratch_.work.Need(weights_.experts.size() + 1);
  if (weights_.shared.gate.empty()) return 0;
  const size_t pairs = n * top_k_;
  work[0] = {weights_.shared, {token_rows_ + pairs, n}, {out_rows_ + pairs, n}};
  return 1;
}

void MoeBlock::RunExperts(const Step& step, const float* x) {
  const size_t n = step.rows.size();
  GroupPairs(n);
  expert_out_ = scratch_.expert_out.Need((n * top_k_ + n) * config_.hidden_size);
  if (stream_ == nullptr) {
    RunResident(step, x);
  } else {
    RunStreamed(step, x);
  }
}

void MoeBlock::RunResident(const Step& step, const float* x) {
  size_t used = AddShared(step.rows.size());
  const size_t experts = weights_.experts.size();
  kernels::ExpertWork* work = scratch_.work.Need(experts + 1);
  uint32_t* fresh = scratch_.fresh.Need(experts);
  size_t num_fresh = 0;
  for (uint32_t e = 0; e < experts; ++e) {
    const kernels::ExpertWork own = WorkOf(e, weights_.experts[e]);
    if (own.token_rows.empty()) continue;
    if (!unverified_.empty() && unverified_[e]) fresh[num_fresh++] = e;
    work[used++] = own;
  }
  if (num_fresh > 0) VerifyExperts(step.compute->pool(), {fresh, num_fresh});
  step.compute->RoutedFfn({work, used}, config_.gate_function, x, config_.hidden_size, expert_out_);
}

// Computes with experts as they come. Each has rows of its own in expert_out, which are added up
// afterwards in a fixed order.
void MoeBlock::RunStreamed(const Step& step, const float* x) {
  const size_t experts = weights_.experts.size();
  const auto run = [&](size_t count) {
    if (count == 0) return;
    step.compute->RoutedFfn({scratch_.work.Need(experts + 1), count}, config_.gate_function, x,
                            config_.hidden_size, expert_out_);
  };
  size_t used = AddShared(step.rows.size());
  kernels::ExpertWork* work = scratch_.work.Need(experts + 1);
  uint32_t* wanted = scratch_.fresh.Need(experts);
  size_t num_wanted = 0;
  for (uint32_t e = 0; e < experts; ++e) {
    const kernels::ExpertWork own = WorkOf(e, weights_.experts[e]);
    if (own.token_rows.empty()) continue;
    if (stream_->IsHeld(layer_, e)) {
      work[used++] = own;
    } else {
      wanted[num_wanted++] = e;
    }
  }
  stream_->Begin(layer_, {wanted, num_wanted});
  // While the first of them are read: what needs no reading, and a look at the layer that follows.
  run(used);
  if (next_ != nullptr) next_->Foresee(step);
  for (auto loaded = stream_->Next(); !loaded.empty(); loaded = stream_->Next()) {
    used = 0;
    for (const ExpertStream::Loaded& expert : loaded) {
      work[used++] = WorkOf(expert.expert, expert.ffn);
    }
    run(used);
  }
}

// Routes the residual stream as an earlier layer sees it: what is still to be added to it seldom
// changes the choice.
void MoeBlock::Foresee(const Step& step) {
  const size_t n = step.rows.size();
  if (stream_ == nullptr || n > kMostGuessed || !stream_->WantsGuesses()) return;
  const size_t hidden = config_.hidden_size;
  float* input = scratch_.guess_input.Need(n * hidden);
  uint32_t* ids = scratch_.guess_ids.Need(2 * n * top_k_);
  float* weights = scratch_.guess_weights.Need(n * top_k_);
  const std::vector<float>& norm = layer_weights_.ffn_norm;
  for (size_t row = 0; row < n; ++row) {
    kernels::RmsNorm(step.residual + row * hidden, norm.data(), config_.norm_weight_offset,
                     config_.rms_norm_eps, hidden, input + row * hidden);
  }
  ChooseFor(step, input, nullptr, ids, weights);
  // First choices of all rows before second ones, each expert once.
  uint32_t* order = ids + n * top_k_;
  size_t count = 0;
  for (size_t rank = 0; rank < top_k_; ++rank) {
    for (size_t row = 0; row < n; ++row) {
      const uint32_t expert = ids[row * top_k_ + rank];
      if (std::find(order, order + count, expert) == order + count) order[count++] = expert;
    }
  }
  stream_->Prefetch(layer_, {order, count});
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
