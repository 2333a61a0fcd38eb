#include "kernels/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/isa.h"
#include "kernels/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention.cc"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "kernels/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace moewe::kernels::HWY_NAMESPACE {

// Positions whose scores are held at once: a block of the cache, or part of a larger one.
constexpr size_t kTilePositions = 32;

// A stretch of adjacent rows of one block.
struct KvRows {
  const uint8_t* first;
  size_t stride;  // bytes
  size_t count;
};

KvRows RowsFrom(const KvBlocks& kv, size_t position, size_t end) {
  const size_t slot = position % kv.block_tokens;
  const size_t count = std::min({end - position, kv.block_tokens - slot, kTilePositions});
  const auto* block = static_cast<const uint8_t*>(kv.blocks[position / kv.block_tokens]);
  const size_t stride = KvRowBytes(kv.type, kv.row_stride);
  return {block + slot * stride, stride, count};
}

// scores[t][i] = scale * q[t] . row i, soft-capped.
template <class Stored, size_t T>
void Scores(const AttentionParams& params, const float* const* q, const KvRows& rows,
            float (*scores)[kTilePositions]) {
  constexpr size_t kRows = T == 1 ? 4 : 2;  // AVX2 has 16 registers
  for (size_t i = 0; i < rows.count; i += kRows) {
    const uint8_t* at[kRows];
    for (size_t r = 0; r < kRows; ++r) {
      at[r] = rows.first + std::min(i + r, rows.count - 1) * rows.stride;
    }
    float out[T][kRows];
    DotTile<Stored, kRows, T>(at, q, params.head_dim, out);
    for (size_t t = 0; t < T; ++t) {
      for (size_t r = 0; r < kRows && i + r < rows.count; ++r) {
        scores[t][i + r] = out[t][r] * params.scale;
      }
    }
  }
  if (params.soft_cap == 0) return;
  for (size_t t = 0; t < T; ++t) {
    for (size_t i = 0; i < rows.count; ++i) {
      scores[t][i] = params.soft_cap * std::tanh(scores[t][i] / params.soft_cap);
    }
  }
}

// sums[t][v] = sums[t][v] * fade[t] + sum over rows of weights[t][row] * row[v].
template <class Stored, size_t T>
void AddValues(const KvRows& rows, const float (*weights)[kTilePositions], const float* fade,
               size_t dim, float* const* sums) {
  constexpr size_t kVectors = T == 1 ? 4 : 2;  // of values summed at once
  const DF d;
  const size_t lanes = hn::Lanes(d);
  size_t v = 0;
  for (; v + kVectors * lanes <= dim; v += kVectors * lanes) {
    VF acc[T][kVectors];
    for (size_t t = 0; t < T; ++t) {
      for (size_t k = 0; k < kVectors; ++k) {
        acc[t][k] = hn::Mul(hn::LoadU(d, sums[t] + v + k * lanes), hn::Set(d, fade[t]));
      }
    }
    const uint8_t* row = rows.first;
    for (size_t i = 0; i < rows.count; ++i, row += rows.stride) {
      VF values[kVectors];
      for (size_t k = 0; k < kVectors; ++k) values[k] = Stored::Load(d, row, v + k * lanes);
      for (size_t t = 0; t < T; ++t) {
        const VF weight = hn::Set(d, weights[t][i]);
        for (size_t k = 0; k < kVectors; ++k) {
          acc[t][k] = hn::MulAdd(weight, values[k], acc[t][k]);
        }
      }
    }
    for (size_t t = 0; t < T; ++t) {
      for (size_t k = 0; k < kVectors; ++k) hn::StoreU(acc[t][k], d, sums[t] + v + k * lanes);
    }
  }
  for (; v < dim; v += lanes) {
    const size_t count = std::min(lanes, dim - v);
    for (size_t t = 0; t < T; ++t) {
      VF acc = hn::Mul(LoadPart<StoredF32>(d, reinterpret_cast<const uint8_t*>(sums[t]), v, count),
                       hn::Set(d, fade[t]));
      const uint8_t* row = rows.first;
      for (size_t i = 0; i < rows.count; ++i, row += rows.stride) {
        acc = hn::MulAdd(hn::Set(d, weights[t][i]), LoadPart<Stored>(d, row, v, count), acc);
      }
      alignas(64) float part[HWY_MAX_BYTES / sizeof(float)];
      hn::Store(acc, d, part);
      std::memcpy(sums[t] + v, part, count * sizeof(float));
    }
  }
}

// Replaces scores by exp(score - max); gives their sum.
double Weigh(float* scores, size_t count, float max) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  std::fill(scores + count, scores + kTilePositions, -std::numeric_limits<float>::infinity());
  for (size_t i = 0; i < count; i += lanes) {
    hn::Store(ExpOrNan(d, hn::Sub(hn::Load(d, scores + i), hn::Set(d, max))), d, scores + i);
  }
  double sum = 0;
  for (size_t i = 0; i < count; ++i) sum += double{scores[i]};
  return sum;
}

// The order of operations of a query does not depend on T.
template <class Stored, size_t T>
void Attend(const AttentionParams& params, const float* const* q, const KvBlocks& keys,
            const KvBlocks& values, size_t begin, size_t end, float* const* out) {
  float max[T];
  float fade[T];
  double sum[T];
  for (size_t t = 0; t < T; ++t) {
    max[t] = params.sinks != nullptr ? params.sinks[t] : -std::numeric_limits<float>::infinity();
    sum[t] = params.sinks != nullptr ? 1.0 : 0.0;
    std::fill_n(out[t], params.value_dim, 0.0f);
  }
  alignas(64) float scores[T][kTilePositions];
  for (size_t position = begin; position < end;) {
    const KvRows key_rows = RowsFrom(keys, position, end);
    const KvRows value_rows = RowsFrom(values, position, end);
    const size_t count = key_rows.count;
    Scores<Stored, T>(params, q, key_rows, scores);
    for (size_t t = 0; t < T; ++t) {
      float tile_max = max[t];
      for (size_t i = 0; i < count; ++i) {
        tile_max = scores[t][i] > tile_max ? scores[t][i] : tile_max;
      }
      // What was summed against a smaller maximum fades; nothing yet is zero whatever the factor.
      fade[t] = max[t] == tile_max ? 1.0f : std::exp(max[t] - tile_max);
      max[t] = tile_max;
      sum[t] = sum[t] * double{fade[t]} + Weigh(scores[t], count, tile_max);
    }
    AddValues<Stored, T>(value_rows, scores, fade, params.value_dim, out);
    position += count;
  }
  for (size_t t = 0; t < T; ++t) {
    // A NaN stays visible; no positions and no sink give zeros.
    const float inverse = sum[t] == 0 ? 0.0f : static_cast<float>(1.0 / sum[t]);
    for (size_t i = 0; i < params.value_dim; ++i) out[t][i] *= inverse;
  }
}

template <size_t T>
void AttendStored(const AttentionParams& params, const float* const* q, const KvBlocks& keys,
                  const KvBlocks& values, size_t begin, size_t end, float* const* out) {
  switch (keys.type) {
    case KvType::kF32:
      return Attend<StoredF32, T>(params, q, keys, values, begin, end, out);
    case KvType::kF16:
      return Attend<StoredF16, T>(params, q, keys, values, begin, end, out);
    case KvType::kQ8:
      return Attend<StoredQ8, T>(params, q, keys, values, begin, end, out);
  }
}

void AttendImpl(AttentionParams params, const float* const* q, size_t n, const KvBlocks& keys,
                const KvBlocks& values, size_t begin, size_t end, float* const* out) {
  for (; n >= kAttendTogether; n -= kAttendTogether, q += kAttendTogether, out += kAttendTogether) {
    AttendStored<kAttendTogether>(params, q, keys, values, begin, end, out);
    if (params.sinks != nullptr) params.sinks += kAttendTogether;
  }
  if (n == 3) AttendStored<3>(params, q, keys, values, begin, end, out);
  if (n == 2) AttendStored<2>(params, q, keys, values, begin, end, out);
  if (n == 1) AttendStored<1>(params, q, keys, values, begin, end, out);
}

}  // namespace moewe::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moewe::kernels {

HWY_EXPORT(AttendImpl);

void Attend(const AttentionParams& params, std::span<const float* const> q, const KvBlocks& keys,
            const KvBlocks& values, size_t begin, size_t end, float* const* out) {
  // The fast version walks keys and values together.
  const bool alike = keys.type == values.type && keys.block_tokens == values.block_tokens;
  if (ActiveIsa() == Isa::kScalar || !alike) {
    AttentionParams one = params;
    for (size_t i = 0; i < q.size(); ++i) {
      if (params.sinks != nullptr) one.sinks = params.sinks + i;
      reference::AttendOne(one, q[i], keys, values, begin, end, out[i]);
    }
    return;
  }
  HWY_DYNAMIC_DISPATCH(AttendImpl)(params, q.data(), q.size(), keys, values, begin, end, out);
}

void AttendOne(const AttentionParams& params, const float* q, const KvBlocks& keys,
               const KvBlocks& values, size_t begin, size_t end, float* out) {
  Attend(params, {&q, 1}, keys, values, begin, end, &out);
}

}  // namespace moewe::kernels
#endif  // HWY_ONCE
