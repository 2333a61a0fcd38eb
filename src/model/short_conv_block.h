// Gated short convolution (LFM2): a token mixer that sees a few positions back and carries no more
// than those from step to step.
#ifndef MOEWE_MODEL_SHORT_CONV_BLOCK_H_
#define MOEWE_MODEL_SHORT_CONV_BLOCK_H_

#include "model/config.h"
#include "model/conv_state.h"
#include "model/step.h"
#include "model/weights.h"

namespace moewe::model {

// Scratch memory that the blocks of all layers share.
struct ShortConvScratch {
  Scratch<float> projected, inputs, mixed;  // [3 * hidden], [hidden], [hidden]

  // Floats that a step takes for each row.
  static uint64_t FloatsPerRow(uint64_t hidden) { return 5 * hidden; }
};

class ShortConvBlock {
 public:
  // Config and weights must outlive the block. `visit` is the layer's part of the state.
  ShortConvBlock(int visit, const ModelConfig& config, const ShortConvWeights& weights,
                 ShortConvScratch* scratch);

  // With [b; c; u] = in x: out[rows, hidden] = out_proj (c * conv(b * u)); writes the sequences'
  // next states.
  void Run(const Step& step, const float* x, float* out);

 private:
  const ModelConfig& config_;
  const ShortConvWeights& weights_;
  ShortConvScratch& scratch_;
  const ConvState conv_;
};

}  // namespace moewe::model

#endif  // MOEWE_MODEL_SHORT_CONV_BLOCK_H_
