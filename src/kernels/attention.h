// Softmax attention of query heads over a paged KV cache.
#ifndef MOEWE_KERNELS_ATTENTION_H_
#define MOEWE_KERNELS_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/kv_rows.h"

namespace moewe::kernels {

// The keys or values of one KV head in fixed blocks: position p is row p % block_tokens of
// blocks[p / block_tokens]; rows have room for `row_stride` elements.
struct KvBlocks {
  std::span<const void* const> blocks;  // each points at this head's first row in the block
  uint32_t block_tokens = 0;
  uint32_t row_stride = 0;
  KvType type = KvType::kF16;
};

struct AttentionParams {
  uint32_t head_dim = 0;  // of queries and keys
  uint32_t value_dim = 0;
  float scale = 1.0f;     // multiplies scores
  float soft_cap = 0.0f;  // 0 = none; cap * tanh(score / cap), after scale
  // Of each query: one logit that joins the softmax denominator only. Null = none.
  const float* sinks = nullptr;
};

// out[value_dim] = softmax(scale * q . K[begin, end)) V[begin, end) for one query row and head.
// Positions go in ascending order in fixed blocks, so the result does not depend on how the caller
// batches rows.
void AttendOne(const AttentionParams& params, const float* q, const KvBlocks& keys,
               const KvBlocks& values, size_t begin, size_t end, float* out);

// Queries that share the work of reading keys and values.
inline constexpr size_t kAttendTogether = 4;

// The same for several queries over the same positions, the query heads of one KV head: out[i] is
// what AttendOne gives for q[i], bit for bit.
void Attend(const AttentionParams& params, std::span<const float* const> q, const KvBlocks& keys,
            const KvBlocks& values, size_t begin, size_t end, float* const* out);

}  // namespace moewe::kernels

#endif  // MOEWE_KERNELS_ATTENTION_H_
