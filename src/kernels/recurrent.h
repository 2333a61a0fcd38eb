// f32 operations of layers that carry a state from token to token: causal convolutions and the
// gated delta rule. Each has a scalar definition and SIMD versions chosen at run time; what a token
// gives does not depend on how many are computed at a time. No threads, no allocation.
#ifndef MOEWE_KERNELS_RECURRENT_H_
#define MOEWE_KERNELS_RECURRENT_H_

#include <cstddef>
#include <span>

namespace moewe::kernels {

// out[c] = sum over t of taps[t * channels + c] * inputs[t][c], the oldest input first; a null
// input is zeros.
void CausalConv(std::span<const float* const> inputs, const float* taps, size_t channels,
                float* out);

// x[i] = x[i] * sigmoid(x[i])
void Silu(float* x, size_t n);

// What a delta rule's state keeps, from a projection x: with rate[i] > 0,
// x[i] = exp(-rate[i] * softplus(x[i] + bias[i])), or, if least < 0,
// x[i] = exp(least * sigmoid(rate[i] * (x[i] + bias[i]))).
void Decays(const float* rate, const float* bias, float least, size_t n, float* x);

// One token of one head.
struct DeltaStep {
  const float* query = nullptr;  // [key_dim]
  const float* key = nullptr;    // [key_dim]
  const float* value = nullptr;  // [value_dim]
  const float* decay = nullptr;  // [1], or [key_dim] if decays_by_channel
  bool decays_by_channel = false;
  float beta = 0.0f;
};

// state[i, :] *= decay[i]; state += key (beta (value - state^T key))^T; out = state^T query, where
// state is [key_dim, value_dim].
void DeltaRule(const DeltaStep& step, size_t key_dim, size_t value_dim, float* state, float* out);

}  // namespace moewe::kernels

#endif  // MOEWE_KERNELS_RECURRENT_H_
