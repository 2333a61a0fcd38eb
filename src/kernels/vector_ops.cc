#include "kernels/vector_ops.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/isa.h"
#include "kernels/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/vector_ops.cc"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "kernels/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace moewe::kernels::HWY_NAMESPACE {

constexpr size_t kMaxLanes = HWY_MAX_BYTES / sizeof(float);

// x[i] = f(i, x[i]) by vectors; what lies past the end is computed on zeros and dropped.
template <class F>
HWY_INLINE void ForVectors(float* x, size_t n, const F& f) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(f(hn::LoadU(d, x + i), i, lanes), d, x + i);
  if (i < n) {
    alignas(64) float part[kMaxLanes] = {};
    std::memcpy(part, x + i, (n - i) * sizeof(float));
    hn::Store(f(hn::Load(d, part), i, n - i), d, part);
    std::memcpy(x + i, part, (n - i) * sizeof(float));
  }
}

// Elements [i, i + count) of another array for f above.
HWY_INLINE VF Other(const float* p, size_t i, size_t count) {
  const DF d;
  if (count >= hn::Lanes(d)) return hn::LoadU(d, p + i);
  alignas(64) float part[kMaxLanes] = {};
  std::memcpy(part, p + i, count * sizeof(float));
  return hn::Load(d, part);
}

double SumOfSquares(const float* x, size_t n) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> half;
  const size_t lanes = hn::Lanes(d);
  auto sum0 = hn::Zero(d);
  auto sum1 = hn::Zero(d);
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto a = hn::PromoteTo(d, hn::LoadU(half, x + i));
    const auto b = hn::PromoteTo(d, hn::LoadU(half, x + i + lanes));
    sum0 = hn::MulAdd(a, a, sum0);
    sum1 = hn::MulAdd(b, b, sum1);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; i < n; ++i) sum += double{x[i]} * double{x[i]};
  return sum;
}

void RmsNormImpl(const float* x, const float* w, float w_offset, float eps, size_t n, float* out) {
  const DF d;
  const double mean = SumOfSquares(x, n) / static_cast<double>(n);
  const VF inverse = hn::Set(d, static_cast<float>(1.0 / std::sqrt(mean + double{eps})));
  const VF offset = hn::Set(d, w_offset);
  if (out != x) std::memcpy(out, x, n * sizeof(float));
  ForVectors(out, n, [&](VF v, size_t i, size_t count) {
    const VF scaled = hn::Mul(v, inverse);
    return w == nullptr ? scaled : hn::Mul(scaled, hn::Add(Other(w, i, count), offset));
  });
}

// The pair (a, b) turned by an angle; no fused operation, as in the definition.
HWY_INLINE void Turn(VF c, VF s, VF* a, VF* b) {
  const VF a0 = *a;
  *a = hn::Sub(hn::Mul(a0, c), hn::Mul(*b, s));
  *b = hn::Add(hn::Mul(*b, c), hn::Mul(a0, s));
}

void ApplyRopeImpl(float* head, const float* cos, const float* sin, size_t n_pairs,
                   bool interleaved) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n_pairs; i += lanes) {
    VF a;
    VF b;
    if (interleaved) {
      hn::LoadInterleaved2(d, head + 2 * i, a, b);
    } else {
      a = hn::LoadU(d, head + i);
      b = hn::LoadU(d, head + i + n_pairs);
    }
    Turn(hn::LoadU(d, cos + i), hn::LoadU(d, sin + i), &a, &b);
    if (interleaved) {
      hn::StoreInterleaved2(a, b, d, head + 2 * i);
    } else {
      hn::StoreU(a, d, head + i);
      hn::StoreU(b, d, head + i + n_pairs);
    }
  }
  for (; i < n_pairs; ++i) {
    float& a = head[interleaved ? 2 * i : i];
    float& b = head[interleaved ? 2 * i + 1 : i + n_pairs];
    const float a0 = a;
    a = a0 * cos[i] - b * sin[i];
    b = b * cos[i] + a0 * sin[i];
  }
}

void SoftmaxImpl(float* x, size_t n) {
  const DF d;
  const VF lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  float max = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < n; ++i) max = x[i] > max ? x[i] : max;
  double sum = 0;
  ForVectors(x, n, [&](VF v, size_t, size_t count) {
    // With everything at -inf the difference would be NaN.
    const VF e = hn::IfThenZeroElse(hn::Eq(v, lowest), ExpOrNan(d, hn::Sub(v, hn::Set(d, max))));
    alignas(64) float parts[kMaxLanes];
    hn::Store(e, d, parts);
    for (size_t i = 0; i < count; ++i) sum += double{parts[i]};
    return e;
  });
  if (sum == 0) return;
  const VF inverse = hn::Set(d, static_cast<float>(1.0 / sum));
  ForVectors(x, n, [&](VF v, size_t, size_t) { return hn::Mul(v, inverse); });
}

void SoftCapImpl(float* x, float cap, size_t n) {
  const DF d;
  const VF caps = hn::Set(d, cap);
  ForVectors(x, n, [&](VF v, size_t, size_t) {
    const VF t = hn::Div(v, caps);
    return hn::IfThenElse(hn::IsNaN(v), v, hn::Mul(caps, hn::Tanh(d, t)));
  });
}

float DotImpl(const float* a, const float* b, size_t n) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  VF sum0 = hn::Zero(d);
  VF sum1 = hn::Zero(d);
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    sum0 = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sum0);
    sum1 = hn::MulAdd(hn::LoadU(d, a + i + lanes), hn::LoadU(d, b + i + lanes), sum1);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

void AddScaledImpl(float* y, const float* x, float scale, size_t n) {
  const VF scales = hn::Set(DF(), scale);
  ForVectors(y, n, [&](VF v, size_t i, size_t count) {
    return hn::MulAdd(scales, Other(x, i, count), v);
  });
}

// v * sigmoid(u): silu with u = v, and tanh-gelu with u = 2 sqrt(2 / pi) (v + 0.044715 v^3), since
// (1 + tanh(a)) / 2 = sigmoid(2 a).
HWY_INLINE VF TimesSigmoid(VF v, VF u) {
  const DF d;
  // exp stays finite; what lies beyond is as good as zero.
  const VF e = hn::Exp(d, hn::Min(hn::Neg(u), hn::Set(d, 88.0f)));
  return hn::Div(v, hn::Add(hn::Set(d, 1.0f), e));
}

void ClampedSwiglu(const Gate& function, float* gate, const float* up, size_t n) {
  const DF d;
  const VF alpha = hn::Set(d, function.alpha);
  const VF high = hn::Set(d, function.limit);
  const VF low = hn::Neg(high);
  ForVectors(gate, n, [&](VF v, size_t i, size_t count) {
    // Comparisons that are false for a NaN leave it.
    const VF g = hn::IfThenElse(hn::Gt(v, high), high, v);
    VF u = Other(up, i, count);
    u = hn::IfThenElse(hn::Gt(u, high), high, hn::IfThenElse(hn::Lt(u, low), low, u));
    return hn::Mul(TimesSigmoid(g, hn::Mul(alpha, g)), hn::Add(u, hn::Set(d, 1.0f)));
  });
}

void GateTimesUpImpl(const Gate& function, float* gate, const float* up, size_t n) {
  const DF d;
  if (function.function == GateFunction::kClampedSwiglu) {
    return ClampedSwiglu(function, gate, up, n);
  }
  if (function.function == GateFunction::kSilu) {
    ForVectors(gate, n, [&](VF v, size_t i, size_t count) {
      return hn::Mul(TimesSigmoid(v, v), Other(up, i, count));
    });
    return;
  }
  const VF linear = hn::Set(d, 1.5957691216057308f);
  const VF cubic = hn::Set(d, 1.5957691216057308f * 0.044715f);
  ForVectors(gate, n, [&](VF v, size_t i, size_t count) {
    const VF u = hn::Mul(v, hn::MulAdd(hn::Mul(cubic, v), v, linear));
    return hn::Mul(TimesSigmoid(v, u), Other(up, i, count));
  });
}

void TimesGateImpl(OutputGate function, float* x, const float* gate, size_t n) {
  const DF d;
  ForVectors(x, n, [&](VF v, size_t i, size_t count) {
    const VF g = Other(gate, i, count);
    VF product;
    if (function == OutputGate::kSigmoid) {
      product = TimesSigmoid(v, g);
    } else {
      // log(1 + e^g), without overflow.
      const VF rest = hn::Log1p(d, hn::Exp(d, hn::Neg(hn::Abs(g))));
      product = hn::Mul(v, hn::Add(hn::Max(g, hn::Zero(d)), rest));
    }
    return hn::IfThenElse(hn::IsNaN(g), g, product);
  });
}

}  // namespace moewe::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moewe::kernels {

HWY_EXPORT(RmsNormImpl);
HWY_EXPORT(ApplyRopeImpl);
HWY_EXPORT(SoftmaxImpl);
HWY_EXPORT(SoftCapImpl);
HWY_EXPORT(AddScaledImpl);
HWY_EXPORT(DotImpl);
HWY_EXPORT(GateTimesUpImpl);
HWY_EXPORT(TimesGateImpl);

void RmsNorm(const float* x, const float* w, float w_offset, float eps, size_t n, float* out) {
  if (ActiveIsa() == Isa::kScalar) return reference::RmsNorm(x, w, w_offset, eps, n, out);
  HWY_DYNAMIC_DISPATCH(RmsNormImpl)(x, w, w_offset, eps, n, out);
}

void ApplyRope(float* head, const float* cos, const float* sin, size_t n_pairs, bool interleaved) {
  if (ActiveIsa() == Isa::kScalar) {
    return reference::ApplyRope(head, cos, sin, n_pairs, interleaved);
  }
  HWY_DYNAMIC_DISPATCH(ApplyRopeImpl)(head, cos, sin, n_pairs, interleaved);
}

void Softmax(float* x, size_t n) {
  if (ActiveIsa() == Isa::kScalar) return reference::Softmax(x, n);
  HWY_DYNAMIC_DISPATCH(SoftmaxImpl)(x, n);
}

void SoftCap(float* x, float cap, size_t n) {
  if (ActiveIsa() == Isa::kScalar) return reference::SoftCap(x, cap, n);
  HWY_DYNAMIC_DISPATCH(SoftCapImpl)(x, cap, n);
}

void AddScaled(float* y, const float* x, float scale, size_t n) {
  if (ActiveIsa() == Isa::kScalar) return reference::AddScaled(y, x, scale, n);
  HWY_DYNAMIC_DISPATCH(AddScaledImpl)(y, x, scale, n);
}

float Dot(const float* a, const float* b, size_t n) {
  if (ActiveIsa() == Isa::kScalar) return static_cast<float>(reference::Dot(a, b, n));
  return HWY_DYNAMIC_DISPATCH(DotImpl)(a, b, n);
}

void GateTimesUp(const Gate& function, float* gate, const float* up, size_t n) {
  if (ActiveIsa() == Isa::kScalar) return reference::GateTimesUp(function, gate, up, n);
  HWY_DYNAMIC_DISPATCH(GateTimesUpImpl)(function, gate, up, n);
}

void TimesGate(OutputGate function, float* x, const float* gate, size_t n) {
  if (ActiveIsa() == Isa::kScalar) return reference::TimesGate(function, x, gate, n);
  HWY_DYNAMIC_DISPATCH(TimesGateImpl)(function, x, gate, n);
}

}  // namespace moewe::kernels
#endif  // HWY_ONCE
