// Grouped-query attention of one layer over the paged KV cache: projections, q/k norms, rotary
// embedding, sliding window, soft cap, sinks, output gates.
#ifndef MOEWE_MODEL_ATTENTION_BLOCK_H_
#define MOEWE_MODEL_ATTENTION_BLOCK_H_

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "model/config.h"
#include "model/step.h"
#include "model/task_mask.h"
#include "model/weights.h"

namespace moewe::model {

// Scratch memory that the attention blocks of all layers share.
struct AttentionScratch {
  Scratch<float> q, k, v, gate, mixed;
  Scratch<const void*> key_blocks, value_blocks;
  Scratch<size_t> first_block;
};

class AttentionBlock {
 public:
  // Config, weights and mask must outlive the block. `visit` is the layer's part of the KV cache.
  AttentionBlock(int visit, const ModelConfig& config, const AttentionWeights& weights,
                 const LayerMask& mask, AttentionScratch* scratch);

  // out[rows, hidden] = attention of x[rows, hidden]; appends the rows' keys and values to their
  // sequences.
  void Run(const Step& step, const float* x, float* out);

 private:
  // Which heads and projection rows are computed: dead query heads are not, nor are KV heads that
  // no live query head reads.
  void ChooseHeads(const LayerMask& mask);
  void Project(const Step& step, const float* x);
  // Norms, rotation and KV append of one row.
  void PrepareRow(const Step& step, size_t row);
  void CollectBlocks(const Step& step);
  // Query heads of one KV head that read it together.
  struct HeadGroup {
    uint32_t kv_head;
    std::array<uint32_t, kernels::kAttendTogether> heads;
    size_t count;
  };
  void AttendHeads(const Step& step, size_t row, const HeadGroup& group) const;
  // Multiplies what a head mixed by its gate.
  void GateOutput(size_t row, uint32_t head, float* mixed) const;

  const int visit_;
  const ModelConfig& config_;
  const LayerConfig& shape_;
  const AttentionWeights& weights_;
  AttentionScratch& scratch_;
  const size_t mix_width_, kv_width_;
  const size_t q_pitch_;  // floats from one head's query to the next one's
  const size_t q_width_;
  const bool no_heads_;
  std::vector<uint32_t> heads_, kv_heads_;  // that are computed, ascending
  std::vector<HeadGroup> head_groups_;
  std::vector<uint32_t> q_rows_, kv_rows_, gate_rows_;  // of the projections; empty = all
  // Of the step that runs.
  float *q_ = nullptr, *k_ = nullptr, *v_ = nullptr, *gate_ = nullptr, *mixed_ = nullptr;
  const void** key_blocks_ = nullptr;  // [chunk][kv head][block], chunks at first_block_
  const void** value_blocks_ = nullptr;
  size_t* first_block_ = nullptr;
};

}  // namespace moewe::model

#endif  // MOEWE_MODEL_ATTENTION_BLOCK_H_
