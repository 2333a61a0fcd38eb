#include "model/conv_state.h"

#include <algorithm>

namespace moewe::model {

const float* ConvState::Input(const Step& step, const float* rows, size_t chunk,
                              ptrdiff_t at) const {
  if (at >= 0) return rows + (step.first_rows[chunk] + static_cast<size_t>(at)) * channels_;
  const float* state = step.sequences[chunk]->State(visit_);
  if (state == nullptr) return nullptr;
  return state + static_cast<size_t>(at + static_cast<ptrdiff_t>(taps_) - 1) * channels_;
}

std::span<const float* const> ConvState::Collect(const Step& step, const float* rows, size_t row,
                                                 Inputs* inputs) const {
  const size_t chunk = step.rows[row].chunk;
  const auto own = static_cast<ptrdiff_t>(row - step.first_rows[chunk]);
  const auto before = static_cast<ptrdiff_t>(taps_) - 1;
  for (ptrdiff_t t = 0; t <= before; ++t) {
    (*inputs)[static_cast<size_t>(t)] = Input(step, rows, chunk, own - before + t);
  }
  return {inputs->data(), taps_};
}

void ConvState::Keep(const Step& step, const float* rows, size_t chunk) const {
  const Sequence& sequence = *step.sequences[chunk];
  const size_t count = step.first_rows[chunk + 1] - step.first_rows[chunk];
  KeepAfter(step, rows, chunk, count, sequence.NextState(visit_));
  if (const size_t inside = sequence.rows_inside(); inside > 0 && inside < count) {
    KeepAfter(step, rows, chunk, inside, sequence.StateInside(visit_));
  }
}

void ConvState::KeepAfter(const Step& step, const float* rows, size_t chunk, size_t count,
                          float* to) const {
  const auto before = static_cast<ptrdiff_t>(taps_) - 1;
  for (ptrdiff_t t = 0; t < before; ++t, to += channels_) {
    const float* input = Input(step, rows, chunk, static_cast<ptrdiff_t>(count) - before + t);
    if (input == nullptr) {
      std::fill_n(to, channels_, 0.0f);
    } else {
      std::copy_n(input, channels_, to);
    }
  }
}

}  // namespace moewe::model
