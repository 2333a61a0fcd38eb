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

// Tokens of one head, one after the other: a row of each of these for every token.
struct DeltaTokens {
  size_t count = 0;
  const float* query = nullptr;  // [key_dim]
  const float* key = nullptr;    // [key_dim]
  const float* value = nullptr;  // [value_dim]
  size_t stride = 0;             // of these three, floats
  const float* decay = nullptr;  // [1], or [key_dim] if decays_by_channel
  size_t decay_stride = 0;
  bool decays_by_channel = false;
  const float* beta = nullptr;  // [1]
  size_t beta_stride = 0;
  float* out = nullptr;  // [value_dim]
  size_t out_stride = 0;
};

// With the state [key_dim, value_dim] that each token leaves to the next one:
// state[i, :] *= decay[i]; state += key (beta (value - state^T key))^T; out = state^T query.
void DeltaRule(const DeltaTokens& tokens, size_t key_dim, size_t value_dim, float* state);

}  // namespace moewe::kernels

#endif  // MOEWE_KERNELS_RECURRENT_H_
