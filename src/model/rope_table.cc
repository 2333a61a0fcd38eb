#include "model/rope_table.h"

#include <cmath>

namespace moewe::model {

void RopeTable::Resize(size_t rows) {
  if (cos_.size() >= rows * pairs()) return;
  cos_.resize(rows * pairs());
  sin_.resize(rows * pairs());
}

void RopeTable::Fill(size_t row, uint32_t position) {
  const bool use_long = !rope_->inv_freq_long.empty() && position >= rope_->long_from;
  const std::vector<float>& inv_freq = use_long ? rope_->inv_freq_long : rope_->inv_freq;
  float* cos = cos_.data() + row * pairs();
  float* sin = sin_.data() + row * pairs();
  for (size_t i = 0; i < pairs(); ++i) {
    const double angle = static_cast<float>(position) * inv_freq[i];
    cos[i] = static_cast<float>(std::cos(angle)) * rope_->attention_factor;
    sin[i] = static_cast<float>(std::sin(angle)) * rope_->attention_factor;
  }
}

}  // namespace moewe::model
