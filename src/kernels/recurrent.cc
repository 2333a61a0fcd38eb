#include "kernels/recurrent.h"

#include <cstring>

#include "kernels/isa.h"
#include "kernels/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/recurrent.cc"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "kernels/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace moewe::kernels::HWY_NAMESPACE {

// A vector of the elements [i, i + count) of p, zeros behind them; and back.
HWY_INLINE VF LoadPart(const float* p, size_t i, size_t count) {
  const DF d;
  if (count >= hn::Lanes(d)) return hn::LoadU(d, p + i);
  alignas(64) float part[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(part, p + i, count * sizeof(float));
  return hn::Load(d, part);
}

HWY_INLINE void StorePart(VF v, float* p, size_t i, size_t count) {
  const DF d;
  if (count >= hn::Lanes(d)) return hn::StoreU(v, d, p + i);
  alignas(64) float part[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(v, d, part);
  std::memcpy(p + i, part, count * sizeof(float));
}

// f(i, count) for each vector of n elements; the last one may be a part.
template <class F>
HWY_INLINE void ForParts(size_t n, const F& f) {
  const size_t lanes = hn::Lanes(DF());
  for (size_t i = 0; i < n; i += lanes) f(i, n - i < lanes ? n - i : lanes);
}

void CausalConvImpl(std::span<const float* const> inputs, const float* taps, size_t channels,
                    float* out) {
  ForParts(channels, [&](size_t i, size_t count) {
    VF sum = hn::Zero(DF());
    for (size_t t = 0; t < inputs.size(); ++t) {
      if (inputs[t] == nullptr) continue;
      sum = hn::MulAdd(LoadPart(taps + t * channels, i, count), LoadPart(inputs[t], i, count), sum);
    }
    StorePart(sum, out, i, count);
  });
}

// 1 / (1 + exp(-x)); exp stays finite, and what lies beyond is as good as zero.
HWY_INLINE VF Sigmoid(VF x) {
  const DF d;
  const VF one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, hn::Exp(d, hn::Min(hn::Neg(x), hn::Set(d, 88.0f)))));
}

void SiluImpl(float* x, size_t n) {
  ForParts(n, [&](size_t i, size_t count) {
    const VF v = LoadPart(x, i, count);
    StorePart(hn::Mul(v, Sigmoid(v)), x, i, count);
  });
}

void DecaysImpl(const float* rate, const float* bias, float least, size_t n, float* x) {
  const DF d;
  ForParts(n, [&](size_t i, size_t count) {
    const VF v = hn::Add(LoadPart(x, i, count), LoadPart(bias, i, count));
    const VF rates = LoadPart(rate, i, count);
    VF log;
    if (least < 0.0f) {
      log = hn::Mul(hn::Set(d, least), Sigmoid(hn::Mul(rates, v)));
    } else {
      const VF softplus =
          hn::Add(hn::Max(v, hn::Zero(d)), hn::Log1p(d, hn::Exp(d, hn::Neg(hn::Abs(v)))));
      log = hn::Neg(hn::Mul(rates, softplus));
    }
    StorePart(ExpOrNan(d, log), x, i, count);
  });
}

// Columns [i, i + count) of a state, which are independent of the others: all tokens pass over
// them before the next ones, so that they stay in the first cache. What a token learns and what the
// next one forgets and finds is one pass.
template <size_t kVectors>
HWY_INLINE void DeltaColumns(const DeltaTokens& tokens, size_t key_dim, size_t value_dim, size_t i,
                             size_t count, float* state) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  const auto part = [&](size_t v) {
    const size_t begin = v * lanes;
    return count - begin < lanes ? count - begin : lanes;
  };
  const auto decay_of = [&](size_t token, size_t row) {
    return tokens.decay[token * tokens.decay_stride + (tokens.decays_by_channel ? row : 0)];
  };
  VF found[kVectors];
  for (size_t v = 0; v < kVectors; ++v) found[v] = hn::Zero(d);
  for (size_t row = 0; row < key_dim; ++row) {
    const VF decay = hn::Set(d, decay_of(0, row));
    const VF key = hn::Set(d, tokens.key[row]);
    for (size_t v = 0; v < kVectors; ++v) {
      const size_t at = row * value_dim + i + v * lanes;
      const VF kept = hn::Mul(LoadPart(state, at, part(v)), decay);
      StorePart(kept, state, at, part(v));
      found[v] = hn::MulAdd(key, kept, found[v]);
    }
  }
  for (size_t token = 0; token < tokens.count; ++token) {
    const float* keys = tokens.key + token * tokens.stride;
    const float* queries = tokens.query + token * tokens.stride;
    VF delta[kVectors];
    VF sum[kVectors];
    for (size_t v = 0; v < kVectors; ++v) {
      const VF value = LoadPart(tokens.value + token * tokens.stride, i + v * lanes, part(v));
      const VF beta = hn::Set(d, tokens.beta[token * tokens.beta_stride]);
      delta[v] = hn::Mul(beta, hn::Sub(value, found[v]));
      sum[v] = found[v] = hn::Zero(d);
    }
    const bool last = token + 1 == tokens.count;
    for (size_t row = 0; row < key_dim; ++row) {
      const VF key = hn::Set(d, keys[row]);
      const VF query = hn::Set(d, queries[row]);
      const VF decay = hn::Set(d, last ? 1.0f : decay_of(token + 1, row));
      const VF next_key = hn::Set(d, last ? 0.0f : keys[tokens.stride + row]);
      for (size_t v = 0; v < kVectors; ++v) {
        const size_t at = row * value_dim + i + v * lanes;
        const VF learned = hn::MulAdd(key, delta[v], LoadPart(state, at, part(v)));
        sum[v] = hn::MulAdd(query, learned, sum[v]);
        const VF kept = hn::Mul(learned, decay);
        StorePart(kept, state, at, part(v));
        found[v] = hn::MulAdd(next_key, kept, found[v]);
      }
    }
    float* out = tokens.out + token * tokens.out_stride;
    for (size_t v = 0; v < kVectors; ++v) StorePart(sum[v], out, i + v * lanes, part(v));
  }
}

void DeltaRuleImpl(const DeltaTokens& tokens, size_t key_dim, size_t value_dim, float* state) {
  constexpr size_t kTogether = 4;
  const size_t lanes = hn::Lanes(DF());
  size_t i = 0;
  for (; i + kTogether * lanes <= value_dim; i += kTogether * lanes) {
    DeltaColumns<kTogether>(tokens, key_dim, value_dim, i, kTogether * lanes, state);
  }
  for (; i < value_dim; i += lanes) {
    const size_t count = value_dim - i < lanes ? value_dim - i : lanes;
    DeltaColumns<1>(tokens, key_dim, value_dim, i, count, state);
  }
}

}  // namespace moewe::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moewe::kernels {

HWY_EXPORT(CausalConvImpl);
HWY_EXPORT(SiluImpl);
HWY_EXPORT(DecaysImpl);
HWY_EXPORT(DeltaRuleImpl);

void CausalConv(std::span<const float* const> inputs, const float* taps, size_t channels,
                float* out) {
  if (ActiveIsa() == Isa::kScalar) return reference::CausalConv(inputs, taps, channels, out);
  HWY_DYNAMIC_DISPATCH(CausalConvImpl)(inputs, taps, channels, out);
}

void Silu(float* x, size_t n) {
  if (ActiveIsa() == Isa::kScalar) return reference::Silu(x, n);
  HWY_DYNAMIC_DISPATCH(SiluImpl)(x, n);
}

void Decays(const float* rate, const float* bias, float least, size_t n, float* x) {
  if (ActiveIsa() == Isa::kScalar) return reference::Decays(rate, bias, least, n, x);
  HWY_DYNAMIC_DISPATCH(DecaysImpl)(rate, bias, least, n, x);
}

void DeltaRule(const DeltaTokens& tokens, size_t key_dim, size_t value_dim, float* state) {
  if (tokens.count == 0) return;
  if (ActiveIsa() == Isa::kScalar) {
    return reference::DeltaRule(tokens, key_dim, value_dim, state);
  }
  HWY_DYNAMIC_DISPATCH(DeltaRuleImpl)(tokens, key_dim, value_dim, state);
}

}  // namespace moewe::kernels
#endif  // HWY_ONCE
