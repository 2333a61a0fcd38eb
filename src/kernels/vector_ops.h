// Element-wise and row-wise f32 operations of a transformer. Each has a scalar definition and SIMD
// versions chosen at run time; sums run in a fixed order. No threads, no allocation.
#ifndef MOEWE_KERNELS_VECTOR_OPS_H_
#define MOEWE_KERNELS_VECTOR_OPS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/compute.h"

namespace moewe::kernels {

// out[i] = x[i] / sqrt(mean(x^2) + eps) * (w[i] + w_offset). w_offset 1 is Gemma's (1 + w).
// w may be null (no weight). out may be x.
void RmsNorm(const float* x, const float* w, float w_offset, float eps, size_t n, float* out);

// Rotates pairs of the first 2 * n_pairs values of one head: halves (i, i + n_pairs), or
// interleaved (2i, 2i + 1). cos/sin [n_pairs].
void ApplyRope(float* head, const float* cos, const float* sin, size_t n_pairs, bool interleaved);

// x[i] = exp(x[i] - max) / sum. All -inf gives zeros.
void Softmax(float* x, size_t n);

// x[i] = cap * tanh(x[i] / cap)
void SoftCap(float* x, float cap, size_t n);

// y[i] += scale * x[i]
void AddScaled(float* y, const float* x, float scale, size_t n);

// The sum of a[i] * b[i].
float Dot(const float* a, const float* b, size_t n);

// gate[i] = what `function` makes of gate[i] and up[i].
void GateTimesUp(const Gate& function, float* gate, const float* up, size_t n);

// What an attention layer's output is multiplied by, of its gate's value.
enum class OutputGate : uint8_t { kSigmoid, kSoftplus };

// x[i] *= function(gate[i])
void TimesGate(OutputGate function, float* x, const float* gate, size_t n);

}  // namespace moewe::kernels

#endif  // MOEWE_KERNELS_VECTOR_OPS_H_
