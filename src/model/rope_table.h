// Cosines and sines of the rotary embedding for the positions of one step.
#ifndef MOEWE_MODEL_ROPE_TABLE_H_
#define MOEWE_MODEL_ROPE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/config.h"

namespace moewe::model {

// As Hugging Face computes it: angle = position * inv_freq in f32; cos and sin times the attention
// factor. longrope switches by position: from `long_from` on, a token's own query and key use the
// long frequencies, and keys cached before keep the short ones. A value then depends only on the
// tokens before it, and is what transformers computes token by token; a prompt that is longer than
// the original context and computed by it in one piece differs.
class RopeTable {
 public:
  explicit RopeTable(const Rope* rope) : rope_(rope) {}

  // Makes room for `rows` rows; keeps its memory.
  void Resize(size_t rows);
  // Fills row `row` for `position`. Different rows may be filled from different threads.
  void Fill(size_t row, uint32_t position);

  size_t pairs() const { return rope_->inv_freq.size(); }
  bool interleaved() const { return rope_->interleaved; }
  const float* Cos(size_t row) const { return cos_.data() + row * pairs(); }
  const float* Sin(size_t row) const { return sin_.data() + row * pairs(); }

 private:
  const Rope* rope_;
  std::vector<float> cos_, sin_;  // [rows, pairs]
};

}  // namespace moewe::model

#endif  // MOEWE_MODEL_ROPE_TABLE_H_
