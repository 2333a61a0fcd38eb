// The scalar definitions: what every SIMD version of this layer is tested against, and what runs on
// a CPU without one (or with MOEWE_ISA=scalar). Clarity before speed.
#ifndef MOEWE_KERNELS_REFERENCE_H_
#define MOEWE_KERNELS_REFERENCE_H_

#include <cstddef>
#include <span>

#include "kernels/attention.h"
#include "kernels/compute.h"
#include "kernels/recurrent.h"
#include "kernels/vector_ops.h"

namespace moewe::kernels::reference {

// Row `row` as f32, value for value what the dtype's codec gives; rows [row_begin, row_end).
void DecodeRow(const Matrix& matrix, uint32_t row, float* out);
void DecodeRows(const Matrix& matrix, uint32_t row_begin, uint32_t row_end, float* out);

// Sum of a[i] * b[i], accumulated in double: the yardstick of the f32 kernels.
double Dot(const float* a, const float* b, size_t n);

float Activate(const Gate& gate, float g, float u);

// As in vector_ops.h.
void RmsNorm(const float* x, const float* w, float w_offset, float eps, size_t n, float* out);
void ApplyRope(float* head, const float* cos, const float* sin, size_t n_pairs, bool interleaved);
void Softmax(float* x, size_t n);
void SoftCap(float* x, float cap, size_t n);
void AddScaled(float* y, const float* x, float scale, size_t n);
void GateTimesUp(const Gate& function, float* gate, const float* up, size_t n);
void TimesGate(OutputGate function, float* x, const float* gate, size_t n);

// As in recurrent.h.
void CausalConv(std::span<const float* const> inputs, const float* taps, size_t channels,
                float* out);
void Silu(float* x, size_t n);
void Decays(const float* rate, const float* bias, float least, size_t n, float* x);
void DeltaRule(const DeltaTokens& tokens, size_t key_dim, size_t value_dim, float* state);

// As in attention.h.
void AttendOne(const AttentionParams& params, const float* q, const KvBlocks& keys,
               const KvBlocks& values, size_t begin, size_t end, float* out);

}  // namespace moewe::kernels::reference

#endif  // MOEWE_KERNELS_REFERENCE_H_
