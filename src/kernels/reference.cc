#include "kernels/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/ladder.h"
#include "kernels/layout.h"
#include "quant/codec.h"
#include "quant/vbit.h"

namespace moewe::kernels::reference {
namespace {

float Nibble(const uint8_t* nibbles, size_t i) {
  return static_cast<float>(((nibbles[i / 2] >> (i % 2 * 4)) & 15) - 8);
}

void DecodeQ8(const Matrix& m, uint32_t row, float* out) {
  const Q8Layout layout(m);
  const float scale = LoadF16(layout.row_scales + size_t{row} * 2);
  const uint8_t* quants = layout.quants + size_t{row} * m.cols;
  for (size_t i = 0; i < m.cols; ++i) {
    out[i] = static_cast<float>(static_cast<int8_t>(quants[i])) * scale;
    if (layout.col_field != nullptr) out[i] *= LoadF16(layout.col_field + i * 2);
  }
}

void DecodeQ4Block(const Matrix& m, uint32_t row, float* out) {
  const Q4BlockLayout layout(m);
  for (size_t i = 0; i < m.cols; ++i) {
    const size_t flat = size_t{row} * m.cols + i;
    out[i] = Nibble(layout.nibbles, flat) * LoadF16(layout.scales + flat / kGroup * 2);
  }
}

void DecodeQ4Tiled(const Matrix& m, uint32_t row, float* out) {
  const uint8_t* tiles = m.bytes.data() + size_t{row} * (m.cols / kGroup) * kTileBytes;
  for (size_t i = 0; i < m.cols; ++i) {
    const uint8_t* tile = tiles + i / kGroup * kTileBytes;
    out[i] = Nibble(tile + 2, i % kGroup) * LoadF16(tile);
  }
}

void DecodeQ4tp(const Matrix& m, uint32_t row, float* out) {
  const Q4tpLayout layout(m);
  float ladder[kLadderRungs];
  MakeLadder(layout.params + size_t{row} * 4, ladder);
  const uint8_t* codes = layout.codes + row * layout.code_bytes;
  const uint8_t* nibbles = layout.nibbles + row * layout.groups_per_row * kGroupNibbles;
  for (size_t g = 0; g < layout.groups_per_row; ++g) {
    const float scale = ladder[LadderCode(codes, g)];
    for (size_t i = 0; i < kGroup; ++i) {
      out[g * kGroup + i] = Nibble(nibbles + g * kGroupNibbles, i) * scale;
    }
  }
}

// False for a dtype that has no definition here.
bool DecodeOwn(const Matrix& m, uint32_t row, float* out) {
  const size_t first = size_t{row} * m.cols;
  switch (m.dtype) {
    case DType::kF32:
      std::memcpy(out, m.bytes.data() + first * 4, size_t{m.cols} * 4);
      return true;
    case DType::kF16:
      for (size_t i = 0; i < m.cols; ++i) out[i] = LoadF16(m.bytes.data() + (first + i) * 2);
      return true;
    case DType::kBf16:
      for (size_t i = 0; i < m.cols; ++i) {
        out[i] = Bf16ToF32(LoadU16(m.bytes.data() + (first + i) * 2));
      }
      return true;
    case DType::kQ8Row:
    case DType::kQ82f:
      DecodeQ8(m, row, out);
      return true;
    case DType::kQ4Block:
      DecodeQ4Block(m, row, out);
      return true;
    case DType::kQ4Tiled:
      DecodeQ4Tiled(m, row, out);
      return true;
    case DType::kQ4tp:
      DecodeQ4tp(m, row, out);
      return true;
    case DType::kVbit:
      if (m.row_starts == nullptr) return false;
      quant::DecodeVbitRow(m.bytes, {m.rows, m.cols}, row, m.row_starts[row], out);
      return true;
    default:
      return false;
  }
}

float KvValue(const KvBlocks& kv, size_t position, size_t i) {
  const void* block = kv.blocks[position / kv.block_tokens];
  const auto* row = static_cast<const uint8_t*>(block) +
                    position % kv.block_tokens * KvRowBytes(kv.type, kv.row_stride);
  switch (kv.type) {
    case KvType::kF32: {
      float value;
      std::memcpy(&value, row + i * 4, sizeof(value));
      return value;
    }
    case KvType::kF16:
      return LoadF16(row + i * 2);
    case KvType::kQ8:
      break;
  }
  const uint8_t* group = row + i / kKvGroup * kKvGroupBytes;
  return static_cast<float>(static_cast<int8_t>(group[2 + i % kKvGroup])) * LoadF16(group);
}

}  // namespace

void DecodeRows(const Matrix& m, uint32_t row_begin, uint32_t row_end, float* out) {
  for (uint32_t row = row_begin; row < row_end; ++row) {
    if (DecodeOwn(m, row, out + size_t{row - row_begin} * m.cols)) continue;
    const quant::Codec* codec = quant::FindCodec(m.dtype);
    const size_t values = size_t{row_end - row_begin} * m.cols;
    if (codec == nullptr) {  // not a dtype that a model binds; NaN rather than a plausible value
      std::fill_n(out, values, std::numeric_limits<float>::quiet_NaN());
    } else {
      codec->decode_rows(m.bytes, {m.rows, m.cols}, row_begin, row_end, out);
    }
    return;
  }
}

void DecodeRow(const Matrix& m, uint32_t row, float* out) { DecodeRows(m, row, row + 1, out); }

double Dot(const float* a, const float* b, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += double{a[i]} * double{b[i]};
  return sum;
}

float Activate(const Gate& gate, float g, float u) {
  double v = g;
  double factor = u;
  switch (gate.function) {
    case GateFunction::kSilu:
      v = v / (1.0 + std::exp(-v));
      break;
    case GateFunction::kGeluTanh: {
      constexpr double kSqrt2OverPi = 0.79788456080286535588;
      v = 0.5 * v * (1.0 + std::tanh(kSqrt2OverPi * (v + 0.044715 * v * v * v)));
      break;
    }
    case GateFunction::kClampedSwiglu: {
      const double limit = gate.limit;
      if (v > limit) v = limit;
      if (factor > limit) factor = limit;
      if (factor < -limit) factor = -limit;
      v = v / (1.0 + std::exp(-double{gate.alpha} * v));
      factor += 1.0;
      break;
    }
  }
  return static_cast<float>(static_cast<float>(v) * factor);
}

void RmsNorm(const float* x, const float* w, float w_offset, float eps, size_t n, float* out) {
  const double mean = Dot(x, x, n) / static_cast<double>(n);
  const double inverse = 1.0 / std::sqrt(mean + double{eps});
  for (size_t i = 0; i < n; ++i) {
    const double weight = w == nullptr ? 1.0 : double{w[i]} + double{w_offset};
    out[i] = static_cast<float>(double{x[i]} * inverse * weight);
  }
}

void ApplyRope(float* head, const float* cos, const float* sin, size_t n_pairs, bool interleaved) {
  for (size_t i = 0; i < n_pairs; ++i) {
    float& a = head[interleaved ? 2 * i : i];
    float& b = head[interleaved ? 2 * i + 1 : i + n_pairs];
    const float a0 = a;
    const float b0 = b;
    a = a0 * cos[i] - b0 * sin[i];
    b = b0 * cos[i] + a0 * sin[i];
  }
}

void Softmax(float* x, size_t n) {
  float max = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < n; ++i) max = std::max(max, x[i]);
  double sum = 0;
  for (size_t i = 0; i < n; ++i) {
    // With everything at -inf the difference would be NaN.
    const double e = x[i] == -std::numeric_limits<float>::infinity()
                         ? 0.0
                         : std::exp(double{x[i]} - double{max});
    x[i] = static_cast<float>(e);
    sum += e;
  }
  if (sum == 0) return;
  for (size_t i = 0; i < n; ++i) x[i] = static_cast<float>(x[i] / sum);
}

void SoftCap(float* x, float cap, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    x[i] = static_cast<float>(double{cap} * std::tanh(double{x[i]} / double{cap}));
  }
}

void AddScaled(float* y, const float* x, float scale, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] = std::fma(scale, x[i], y[i]);
}

void GateTimesUp(const Gate& function, float* gate, const float* up, size_t n) {
  for (size_t i = 0; i < n; ++i) gate[i] = Activate(function, gate[i], up[i]);
}

void TimesGate(OutputGate function, float* x, const float* gate, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const double g = gate[i];
    // log(1 + e^g), without overflow.
    const double factor = function == OutputGate::kSigmoid
                              ? 1.0 / (1.0 + std::exp(-g))
                              : (g > 0.0 ? g : 0.0) + std::log1p(std::exp(-std::abs(g)));
    x[i] = static_cast<float>(double{x[i]} * factor);
  }
}

void CausalConv(std::span<const float* const> inputs, const float* taps, size_t channels,
                float* out) {
  for (size_t c = 0; c < channels; ++c) {
    double sum = 0.0;
    for (size_t t = 0; t < inputs.size(); ++t) {
      if (inputs[t] != nullptr) sum += double{taps[t * channels + c]} * double{inputs[t][c]};
    }
    out[c] = static_cast<float>(sum);
  }
}

void Silu(float* x, size_t n) {
  for (size_t i = 0; i < n; ++i) x[i] = static_cast<float>(x[i] / (1.0 + std::exp(-double{x[i]})));
}

void Decays(const float* rate, const float* bias, float least, size_t n, float* x) {
  for (size_t i = 0; i < n; ++i) {
    const double v = double{x[i]} + double{bias[i]};
    const double log =
        least < 0.0f ? double{least} / (1.0 + std::exp(-double{rate[i]} * v))
                     : -double{rate[i]} * (std::max(v, 0.0) + std::log1p(std::exp(-std::abs(v))));
    x[i] = static_cast<float>(std::exp(log));
  }
}

void DeltaRule(const DeltaTokens& tokens, size_t key_dim, size_t value_dim, float* state) {
  for (size_t t = 0; t < tokens.count; ++t) {
    const float* query = tokens.query + t * tokens.stride;
    const float* key = tokens.key + t * tokens.stride;
    const float* value = tokens.value + t * tokens.stride;
    const float* decay = tokens.decay + t * tokens.decay_stride;
    const double beta = tokens.beta[t * tokens.beta_stride];
    for (size_t j = 0; j < value_dim; ++j) {
      double found = 0.0;
      for (size_t i = 0; i < key_dim; ++i) {
        float& kept = state[i * value_dim + j];
        kept *= decay[tokens.decays_by_channel ? i : 0];
        found += double{kept} * double{key[i]};
      }
      const double delta = beta * (double{value[j]} - found);
      double sum = 0.0;
      for (size_t i = 0; i < key_dim; ++i) {
        float& learned = state[i * value_dim + j];
        learned = static_cast<float>(double{learned} + delta * double{key[i]});
        sum += double{learned} * double{query[i]};
      }
      tokens.out[t * tokens.out_stride + j] = static_cast<float>(sum);
    }
  }
}

void AttendOne(const AttentionParams& params, const float* q, const KvBlocks& keys,
               const KvBlocks& values, size_t begin, size_t end, float* out) {
  std::vector<double> weights(end - begin);
  double max =
      params.sinks != nullptr ? double{params.sinks[0]} : -std::numeric_limits<double>::infinity();
  for (size_t p = begin; p < end; ++p) {
    double score = 0;
    for (size_t i = 0; i < params.head_dim; ++i) {
      score += double{q[i]} * double{KvValue(keys, p, i)};
    }
    score *= double{params.scale};
    if (params.soft_cap != 0) {
      score = double{params.soft_cap} * std::tanh(score / double{params.soft_cap});
    }
    weights[p - begin] = score;
    max = std::max(max, score);
  }
  double sum = params.sinks != nullptr ? std::exp(double{params.sinks[0]} - max) : 0.0;
  for (double& weight : weights) {
    weight = std::exp(weight - max);
    sum += weight;
  }
  for (size_t i = 0; i < params.value_dim; ++i) {
    double value = 0;
    for (size_t p = begin; p < end; ++p)
      value += weights[p - begin] * double{KvValue(values, p, i)};
    out[i] = sum == 0 ? 0.0f : static_cast<float>(value / sum);
  }
}

}  // namespace moewe::kernels::reference
