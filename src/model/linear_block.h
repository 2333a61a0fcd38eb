// Layers whose memory of the past is a matrix a head instead of keys and values: Gated DeltaNet and
// Kimi Delta Attention.
//
// Queries, keys and values pass a short causal convolution; then each value head runs the gated
// delta rule over its state, token after token. The matrix form of the rule would give other bits
// for other chunks, and could save little: a chunk's tokens pass over the state column by column,
// in the first cache (docs/experiments.md).
#ifndef MOEWE_MODEL_LINEAR_BLOCK_H_
#define MOEWE_MODEL_LINEAR_BLOCK_H_

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "model/conv_state.h"
#include "model/step.h"
#include "model/task_mask.h"
#include "model/weights.h"

namespace moewe::model {

// Scratch memory that the blocks of all layers share.
struct LinearScratch {
  Scratch<float> fused;      // a fused projection, or what leads to a decay or a gate
  Scratch<float> raw;        // [channels]: queries, keys and values as projected ...
  Scratch<float> convolved;  // ... and behind the convolution
  Scratch<float> decay, beta, gate, mixed;  // [decays], [value_heads], [values] twice

  // Floats that a step takes for each row.
  static uint64_t FloatsPerRow(const LinearConfig& linear);
};

class LinearBlock {
 public:
  // Config, weights and mask must outlive the block. `visit` is the layer's part of the state.
  LinearBlock(int visit, const ModelConfig& config, const LinearWeights& weights,
              LinearScratch* scratch);

  // out[rows, hidden] = what the layer makes of x[rows, hidden]; writes the sequences' next states.
  void Run(const Step& step, const float* x, float* out);

 private:
  void Project(const Step& step, const float* x);
  // out[rows, up.rows] = up (down x)
  void ProjectTwice(const Step& step, const float* x, const kernels::Matrix& down,
                    const kernels::Matrix& up, float* out);
  // What a fused projection gave for one row, each kind to its place.
  void Unfuse(size_t row, const float* ba);
  // Convolution, norms of queries and keys, decays and betas of one row.
  void PrepareRow(const Step& step, size_t row);
  // All rows of a chunk through one value head.
  void RunHead(const Step& step, size_t chunk, size_t head);

  const int visit_;
  const ModelConfig& config_;
  const LinearConfig& shape_;
  const LinearWeights& weights_;
  LinearScratch& scratch_;
  const bool is_kda_;  // decays by channel; gates by sigmoid, not silu
  const size_t decays_;
  const ConvState conv_;
  // What makes vectors that a norm has given the length sqrt(key_dim) unit vectors, and queries
  // those divided by sqrt(key_dim).
  const std::vector<float> key_scale_, query_scale_;
  // Of the step that runs.
  float *fused_ = nullptr, *raw_ = nullptr, *convolved_ = nullptr;
  float *decay_ = nullptr, *beta_ = nullptr, *gate_ = nullptr, *mixed_ = nullptr;
};

}  // namespace moewe::model

#endif  // MOEWE_MODEL_LINEAR_BLOCK_H_
