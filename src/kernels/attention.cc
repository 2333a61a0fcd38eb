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
constexpr size_t kTileVectors = 4;  // of values summed at once

// A stretch of adjacent rows of one block.
struct KvRows {
  const uint8_t* first;
  size_t stride;  // bytes
  size_t count;
};

template <class Stored>
KvRows RowsFrom(const KvBlocks& kv, size_t position, size_t end) {
  const size_t slot = position % kv.block_tokens;
  const size_t count = std::min({end - position, kv.block_tokens - slot, kTilePositions});
  const auto* block = static_cast<const uint8_t*>(kv.blocks[position / kv.block_tokens]);
  const size_t stride = kv.row_stride * Stored::kBytes;
  return {block + slot * stride, stride, count};
}

// scores[i] = scale * q . row i, soft-capped.
template <class Stored>
void Scores(const AttentionParams& params, const float* q, const KvRows& rows, float* scores) {
  constexpr size_t kRows = 4;
  for (size_t i = 0; i < rows.count; i += kRows) {
    const uint8_t* at[kRows];
    for (size_t r = 0; r < kRows; ++r) {
      at[r] = rows.first + std::min(i + r, rows.count - 1) * rows.stride;
    }
    float out[1][kRows];
    DotTile<Stored, kRows, 1>(at, &q, params.head_dim, out);
    for (size_t r = 0; r < kRows && i + r < rows.count; ++r)
      scores[i + r] = out[0][r] * params.scale;
  }
  if (params.soft_cap == 0) return;
  for (size_t i = 0; i < rows.count; ++i) {
    scores[i] = params.soft_cap * std::tanh(scores[i] / params.soft_cap);
  }
}

// sums[v] = sums[v] * fade + sum over rows of weights[row] * row[v].
template <class Stored>
void AddValues(const KvRows& rows, const float* weights, float fade, size_t dim, float* sums) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  const VF fades = hn::Set(d, fade);
  size_t v = 0;
  for (; v + kTileVectors * lanes <= dim; v += kTileVectors * lanes) {
    VF acc[kTileVectors];
    for (size_t k = 0; k < kTileVectors; ++k) {
      acc[k] = hn::Mul(hn::LoadU(d, sums + v + k * lanes), fades);
    }
    const uint8_t* p = rows.first + v * Stored::kBytes;
    for (size_t i = 0; i < rows.count; ++i, p += rows.stride) {
      const VF weight = hn::Set(d, weights[i]);
      for (size_t k = 0; k < kTileVectors; ++k) {
        acc[k] = hn::MulAdd(weight, Stored::Load(d, p + k * lanes * Stored::kBytes), acc[k]);
      }
    }
    for (size_t k = 0; k < kTileVectors; ++k) hn::StoreU(acc[k], d, sums + v + k * lanes);
  }
  for (; v < dim; v += lanes) {
    const size_t count = std::min(lanes, dim - v);
    VF acc =
        hn::Mul(LoadPart<StoredF32>(d, reinterpret_cast<const uint8_t*>(sums + v), count), fades);
    const uint8_t* p = rows.first + v * Stored::kBytes;
    for (size_t i = 0; i < rows.count; ++i, p += rows.stride) {
      acc = hn::MulAdd(hn::Set(d, weights[i]), LoadPart<Stored>(d, p, count), acc);
    }
    alignas(64) float part[HWY_MAX_BYTES / sizeof(float)];
    hn::Store(acc, d, part);
    std::memcpy(sums + v, part, count * sizeof(float));
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

template <class Stored>
void Attend(const AttentionParams& params, const float* q, const KvBlocks& keys,
            const KvBlocks& values, size_t begin, size_t end, float* out) {
  float max = params.sink != nullptr ? *params.sink : -std::numeric_limits<float>::infinity();
  double sum = params.sink != nullptr ? 1.0 : 0.0;
  std::fill_n(out, params.value_dim, 0.0f);
  alignas(64) float scores[kTilePositions];
  for (size_t position = begin; position < end;) {
    const KvRows key_rows = RowsFrom<Stored>(keys, position, end);
    const KvRows value_rows = RowsFrom<Stored>(values, position, end);
    const size_t count = key_rows.count;
    Scores<Stored>(params, q, key_rows, scores);
    float tile_max = max;
    for (size_t i = 0; i < count; ++i) tile_max = scores[i] > tile_max ? scores[i] : tile_max;
    // What was summed against a smaller maximum fades; nothing yet is zero whatever the factor.
    const float fade = max == tile_max ? 1.0f : std::exp(max - tile_max);
    max = tile_max;
    sum = sum * double{fade} + Weigh(scores, count, max);
    AddValues<Stored>(value_rows, scores, fade, params.value_dim, out);
    position += count;
  }
  // A NaN stays visible; no positions and no sink give zeros.
  const float inverse = sum == 0 ? 0.0f : static_cast<float>(1.0 / sum);
  for (size_t i = 0; i < params.value_dim; ++i) out[i] *= inverse;
}

void AttendOneImpl(const AttentionParams& params, const float* q, const KvBlocks& keys,
                   const KvBlocks& values, size_t begin, size_t end, float* out) {
  if (keys.type == KvType::kF32) {
    Attend<StoredF32>(params, q, keys, values, begin, end, out);
  } else {
    Attend<StoredF16>(params, q, keys, values, begin, end, out);
  }
}

}  // namespace moewe::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moewe::kernels {

HWY_EXPORT(AttendOneImpl);

void AttendOne(const AttentionParams& params, const float* q, const KvBlocks& keys,
               const KvBlocks& values, size_t begin, size_t end, float* out) {
  // The fast version walks keys and values together.
  const bool alike = keys.type == values.type && keys.block_tokens == values.block_tokens;
  if (ActiveIsa() == Isa::kScalar || !alike) {
    return reference::AttendOne(params, q, keys, values, begin, end, out);
  }
  HWY_DYNAMIC_DISPATCH(AttendOneImpl)(params, q, keys, values, begin, end, out);
}

}  // namespace moewe::kernels
#endif  // HWY_ONCE
