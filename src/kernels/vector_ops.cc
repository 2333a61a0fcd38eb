#include "kernels/vector_ops.h"

#include "kernels/reference.h"

namespace moewe::kernels {

void RmsNorm(const float* x, const float* w, float w_offset, float eps, size_t n, float* out) {
  reference::RmsNorm(x, w, w_offset, eps, n, out);
}
void ApplyRope(float* head, const float* cos, const float* sin, size_t n_pairs, bool interleaved) {
  reference::ApplyRope(head, cos, sin, n_pairs, interleaved);
}
void Softmax(float* x, size_t n) { reference::Softmax(x, n); }
void SoftCap(float* x, float cap, size_t n) { reference::SoftCap(x, cap, n); }
void AddScaled(float* y, const float* x, float scale, size_t n) {
  reference::AddScaled(y, x, scale, n);
}
void GateTimesUp(GateFunction function, float* gate, const float* up, size_t n) {
  reference::GateTimesUp(function, gate, up, n);
}

}  // namespace moewe::kernels
