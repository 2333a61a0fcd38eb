// Multi-head latent attention of one layer: queries are taken into the space of the latent vectors,
// attend to those where they lie in the KV cache, and what they mix is taken out again.
//
// With K_h and V_h, the rows of kv_up for keys and values of head h, and a position's latent c:
// q . (K_h c) = (K_h^T q) . c, and sum of w (V_h c) = V_h (sum of w c). So no key or value of a
// head is ever formed, prompts and single tokens are computed alike, and a position takes
// kv_lora_rank + qk_rope_head_dim elements of cache for all heads together.
#ifndef MOEWE_MODEL_MLA_BLOCK_H_
#define MOEWE_MODEL_MLA_BLOCK_H_

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "model/step.h"
#include "model/task_mask.h"
#include "model/weights.h"

namespace moewe::model {

// Scratch memory that the blocks of all layers share.
struct MlaScratch {
  Scratch<float> kv_up;         // decoded: [heads * (nope + v), kv_lora_rank]
  Scratch<float> q_down, q, k;  // a row's values: [q_lora_rank], [heads * head_dim], [key_width]
  Scratch<float> latent_q, latent_mix, mixed;  // [heads * key_width], [heads * rank], [heads * v]
  Scratch<float> gate;                         // [heads]
  Scratch<const void*> blocks;
  Scratch<size_t> first_block;

  // Floats that a step takes for each row, and once.
  static uint64_t FloatsPerRow(const MlaConfig& mla, uint64_t heads);
  static uint64_t FloatsOnce(const MlaConfig& mla, uint64_t heads);
};

class MlaBlock {
 public:
  // Config, weights and mask must outlive the block. `visit` is the layer's part of the KV cache.
  MlaBlock(int visit, const ModelConfig& config, const MlaWeights& weights, const LayerMask& mask,
           MlaScratch* scratch);

  // out[rows, hidden] = attention of x[rows, hidden]; appends the rows' latents to their sequences.
  void Run(const Step& step, const float* x, float* out);

 private:
  void DecodeKvUp(ThreadPool& pool);
  void Project(const Step& step, const float* x);
  // Norms, rotation and cache of one row.
  void PrepareRow(const Step& step, size_t row);
  void CollectBlocks(const Step& step);
  // Heads heads_[first] and the next few, from queries to what they mix.
  void AttendHeads(const Step& step, size_t row, size_t first);

  const int visit_;
  const ModelConfig& config_;
  const LayerConfig& shape_;
  const MlaConfig& mla_;
  const MlaWeights& weights_;
  MlaScratch& scratch_;
  const size_t q_width_, key_width_, head_rows_;
  const size_t q_nope_, q_rope_;  // where these parts of a head's query begin
  const bool no_heads_;
  std::vector<uint32_t> heads_;  // that are computed, ascending
  // Of the step that runs.
  float *kv_up_ = nullptr, *q_ = nullptr, *k_ = nullptr, *latent_q_ = nullptr;
  float *latent_mix_ = nullptr, *mixed_ = nullptr, *gate_ = nullptr;
  const void** blocks_ = nullptr;  // [chunk][block], chunks at first_block_
  size_t* first_block_ = nullptr;
};

}  // namespace moewe::model

#endif  // MOEWE_MODEL_MLA_BLOCK_H_
