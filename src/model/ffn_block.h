// The feed-forward part of a layer: one dense FFN, or routed experts with an optional shared
// expert.
#ifndef MOEWE_MODEL_FFN_BLOCK_H_
#define MOEWE_MODEL_FFN_BLOCK_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/checkpoint.h"
#include "model/config.h"
#include "model/expert_stream.h"
#include "model/step.h"
#include "model/task_mask.h"
#include "model/weights.h"

namespace moewe::model {

class DenseFfnBlock {
 public:
  // Config, weights and mask must outlive the block.
  DenseFfnBlock(const ModelConfig& config, const kernels::FfnMatrices& ffn, const LayerMask& mask)
      : config_(config), ffn_(ffn), dead_(mask.no_neurons) {
    ffn_.live = mask.neurons;
  }

  // out[rows, hidden] = FFN(x[rows, hidden])
  void Run(const Step& step, const float* x, float* out) {
    if (dead_) {
      std::fill_n(out, step.rows.size() * config_.hidden_size, 0.0f);
    } else {
      step.compute->Ffn(ffn_, config_.gate_function, x, step.rows.size(), out);
    }
  }

 private:
  const ModelConfig& config_;
  kernels::FfnMatrices ffn_;
  const bool dead_;
};

// Scratch memory that the MoE blocks of all layers share.
struct MoeScratch {
  Scratch<float> logits, weights, expert_out, shared_gate, guess_input, guess_weights;
  Scratch<uint32_t> ids, token_rows, out_rows, fresh, guess_ids;
  Scratch<size_t> begin;
  Scratch<kernels::ExpertWork> work;
};

class MoeBlock {
 public:
  // `layer` is of `all`, and `visit` what observers are told. Everything must outlive the block.
  // With a stream experts come from there, else from memory: then `verify` says that an expert's
  // stored hashes are checked when a token first goes to it.
  MoeBlock(int visit, const ModelConfig& config, const Weights& all, const LayerWeights& layer,
           const LayerMask& mask, const formats::Checkpoint& checkpoint, bool verify,
           ExpertStream* stream, MoeScratch* scratch);

  // The block that runs next, whose experts this one may foresee. Null = none.
  void SetNext(MoeBlock* next) { next_ = next; }

  // Before the layer's mixer runs: has the experts read that it likely will choose, if that is of
  // use. The residual stream lacks nothing but what the mixer adds.
  void Foresee(const Step& step);

  // out[rows, hidden] = sum over chosen experts + shared expert. Throws Error{kHashMismatch}, and
  // as ExpertStream.
  void Run(const Step& step, const float* x, float* out);

 private:
  void ChooseExperts(const Step& step, const float* x);
  void ChooseFor(const Step& step, const float* x, float* shared_gate, uint32_t* ids,
                 float* weights);
  void GroupPairs(size_t n);
  kernels::ExpertWork WorkOf(uint32_t expert, const kernels::FfnMatrices& ffn) const;
  void RunExperts(const Step& step, const float* x);
  size_t AddShared(size_t n);
  void RunResident(const Step& step, const float* x);
  void RunStreamed(const Step& step, const float* x);
  void Combine(const Step& step, size_t row, float* out) const;
  void VerifyExperts(ThreadPool& pool, std::span<const uint32_t> experts);

  const int visit_;
  const uint32_t layer_;
  const ModelConfig& config_;
  const Weights& all_;
  const LayerWeights& layer_weights_;
  const MoeWeights& weights_;
  const formats::Checkpoint& checkpoint_;
  ExpertStream* const stream_;
  MoeScratch& scratch_;
  MoeBlock* next_ = nullptr;
  const std::vector<uint32_t>& routable_;  // experts, ascending; empty = all
  const std::vector<float> bias_;          // of the routable ones, for the choice
  const size_t top_k_;
  std::vector<bool> unverified_;  // by expert; empty = nothing to verify
  // Of the step that runs.
  const size_t* begin_ = nullptr;         // [experts]: where the pairs of the next one begin
  const uint32_t* token_rows_ = nullptr;  // [rows * top_k], then [rows] for the shared expert
  const uint32_t* out_rows_ = nullptr;
  uint32_t* ids_ = nullptr;       // [rows, top_k]
  float* chosen_ = nullptr;       // [rows, top_k]
  float* expert_out_ = nullptr;   // [rows * top_k, hidden], then the shared expert's [rows, hidden]
  float* shared_gate_ = nullptr;  // [rows]
};

}  // namespace moewe::model

#endif  // MOEWE_MODEL_FFN_BLOCK_H_
