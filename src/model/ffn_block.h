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
  Scratch<float> logits, weights, expert_out, shared_gate;
  Scratch<uint32_t> ids, token_rows, out_rows, fresh;
  Scratch<size_t> begin;
  Scratch<kernels::ExpertWork> work;
};

class MoeBlock {
 public:
  // `weights` belongs to `all`; everything must outlive the block. `verify`: an expert's stored
  // hashes are checked when a token first goes to it. `layer` is the visit that observers are told.
  MoeBlock(int layer, const ModelConfig& config, const Weights& all, const MoeWeights& weights,
           const LayerMask& mask, const formats::Checkpoint& checkpoint, bool verify,
           MoeScratch* scratch);

  // out[rows, hidden] = sum over chosen experts + shared expert. Throws Error{kHashMismatch}.
  void Run(const Step& step, const float* x, float* out);

 private:
  void ChooseExperts(const Step& step, const float* x);
  void RunExperts(const Step& step, const float* x);
  void Combine(const Step& step, size_t row, float* out) const;
  void VerifyExperts(ThreadPool& pool, std::span<const uint32_t> experts);

  const int layer_;
  const ModelConfig& config_;
  const Weights& all_;
  const MoeWeights& weights_;
  const formats::Checkpoint& checkpoint_;
  MoeScratch& scratch_;
  const std::vector<uint32_t>& routable_;  // experts, ascending; empty = all
  const std::vector<float> bias_;          // of the routable ones, for the choice
  const size_t top_k_;
  std::vector<bool> unverified_;  // by expert; empty = nothing to verify
  // Of the step that runs.
  uint32_t* ids_ = nullptr;       // [rows, top_k]
  float* chosen_ = nullptr;       // [rows, top_k]
  float* expert_out_ = nullptr;   // [rows * top_k, hidden], then the shared expert's [rows, hidden]
  float* shared_gate_ = nullptr;  // [rows]
};

}  // namespace moewe::model

#endif  // MOEWE_MODEL_FFN_BLOCK_H_
