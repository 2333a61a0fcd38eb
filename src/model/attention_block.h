// Grouped-query attention of one layer over the paged KV cache: projections, q/k norms, rotary
// embedding, sliding window, soft cap.
#ifndef MOEWE_MODEL_ATTENTION_BLOCK_H_
#define MOEWE_MODEL_ATTENTION_BLOCK_H_

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "model/step.h"
#include "model/weights.h"

namespace moewe::model {

// Scratch memory that the attention blocks of all layers share.
struct AttentionScratch {
  Scratch<float> q, k, v, mixed;
  Scratch<const void*> key_blocks, value_blocks;
  Scratch<size_t> first_block;
};

class AttentionBlock {
 public:
  // Config and weights must outlive the block.
  AttentionBlock(int layer, const ModelConfig& config, const AttentionWeights& weights,
                 AttentionScratch* scratch);

  // out[rows, hidden] = attention of x[rows, hidden]; appends the rows' keys and values to their
  // sequences.
  void Run(const Step& step, const float* x, float* out);

 private:
  void Project(const Step& step, const float* x);
  // Norms, rotation and KV append of one row.
  void PrepareRow(const Step& step, size_t row);
  void CollectBlocks(const Step& step);
  void AttendHead(const Step& step, size_t row, uint32_t head) const;

  const int layer_;
  const ModelConfig& config_;
  const LayerConfig& shape_;
  const AttentionWeights& weights_;
  AttentionScratch& scratch_;
  const size_t q_width_, kv_width_;
  // Of the step that runs.
  float *q_ = nullptr, *k_ = nullptr, *v_ = nullptr, *mixed_ = nullptr;
  const void** key_blocks_ = nullptr;  // [chunk][kv head][block], chunks at first_block_
  const void** value_blocks_ = nullptr;
  size_t* first_block_ = nullptr;
};

}  // namespace moewe::model

#endif  // MOEWE_MODEL_ATTENTION_BLOCK_H_
