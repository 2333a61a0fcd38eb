// The inputs of a causal convolution, which lie in a chunk's rows and, before its first one, in the
// sequence's recurrent state.
#ifndef MOEWE_MODEL_CONV_STATE_H_
#define MOEWE_MODEL_CONV_STATE_H_

#include <array>
#include <cstddef>
#include <span>

#include "model/config_limits.h"
#include "model/step.h"

namespace moewe::model {

// What a convolution over rows [rows, channels] of a step sees, and leaves for the next one.
class ConvState {
 public:
  // The state is the first (taps - 1) * channels floats of `visit`'s part of a sequence's.
  ConvState(int visit, size_t taps, size_t channels)
      : visit_(visit), taps_(taps), channels_(channels) {}

  using Inputs = std::array<const float*, kMaxConvTaps>;
  // The inputs of one row, oldest first; null = before the sequence's beginning, zeros.
  std::span<const float* const> Collect(const Step& step, const float* rows, size_t row,
                                        Inputs* inputs) const;

  // The last inputs of a chunk into its sequence's next state, and those before a place where a
  // state inside of the step is kept into that.
  void Keep(const Step& step, const float* rows, size_t chunk) const;

  size_t floats() const { return (taps_ - 1) * channels_; }

 private:
  // The last inputs of the first `count` rows of a chunk.
  void KeepAfter(const Step& step, const float* rows, size_t chunk, size_t count, float* to) const;
  // Of a chunk, the row `at` (negative: before it).
  const float* Input(const Step& step, const float* rows, size_t chunk, ptrdiff_t at) const;

  int visit_;
  size_t taps_, channels_;
};

}  // namespace moewe::model

#endif  // MOEWE_MODEL_CONV_STATE_H_
