#include "model/short_conv_block.h"

#include "kernels/recurrent.h"

namespace moewe::model {

ShortConvBlock::ShortConvBlock(int visit, const ModelConfig& config,
                               const ShortConvWeights& weights, ShortConvScratch* scratch)
    : config_(config),
      weights_(weights),
      scratch_(*scratch),
      conv_(visit, config.linear.conv_taps, config.hidden_size) {}

void ShortConvBlock::Run(const Step& step, const float* x, float* out) {
  const size_t n = step.rows.size();
  const size_t hidden = config_.hidden_size;
  ThreadPool& pool = step.compute->pool();
  float* projected = scratch_.projected.Need(n * 3 * hidden);
  float* inputs = scratch_.inputs.Need(n * hidden);
  float* mixed = scratch_.mixed.Need(n * hidden);
  const kernels::Projection in{weights_.in, nullptr, projected, 3 * hidden};
  step.compute->Project({&in, 1}, x, n, hidden);
  ForRows(pool, n, [&](size_t row) {
    const float* b = projected + row * 3 * hidden;
    const float* u = b + 2 * hidden;
    float* input = inputs + row * hidden;
    for (size_t i = 0; i < hidden; ++i) input[i] = b[i] * u[i];
  });
  ForRows(pool, n, [&](size_t row) {
    ConvState::Inputs before;
    const float* c = projected + row * 3 * hidden + hidden;
    float* mix = mixed + row * hidden;
    kernels::CausalConv(conv_.Collect(step, inputs, row, &before), weights_.conv.data(), hidden,
                        mix);
    for (size_t i = 0; i < hidden; ++i) mix[i] *= c[i];
  });
  for (size_t chunk = 0; chunk < step.sequences.size(); ++chunk) {
    if (step.first_rows[chunk] != step.first_rows[chunk + 1]) conv_.Keep(step, inputs, chunk);
  }
  const kernels::Projection projection{weights_.out, nullptr, out, hidden};
  step.compute->Project({&projection, 1}, mixed, n, hidden);
}

}  // namespace moewe::model
