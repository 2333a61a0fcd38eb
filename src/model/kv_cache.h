// Keys and values in fixed blocks that sequences can share.
#ifndef MOEWE_MODEL_KV_CACHE_H_
#define MOEWE_MODEL_KV_CACHE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/attention.h"

namespace moewe::model {

struct ModelConfig;

using kernels::KvType;
using BlockId = uint32_t;

// Positions a block holds, in every visit of a layer.
inline constexpr uint32_t kBlockTokens = 32;

constexpr size_t BlocksFor(size_t positions) {
  return (positions + kBlockTokens - 1) / kBlockTokens;
}

// All blocks of one model, allocated as needed up to `max_blocks`. Blocks are reference-counted so
// that sequences with a common prefix share them. Not thread-safe: used by the thread that runs the
// model.
class KvPool {
 public:
  KvPool(const ModelConfig& config, KvType type, size_t max_blocks);
  ~KvPool();

  KvType type() const;
  static uint64_t BytesPerBlock(const ModelConfig& config, KvType type);
  size_t max_blocks() const;
  size_t free_blocks() const;

  BlockId Allocate();  // throws Error{kOutOfBudget} when none is free
  void Retain(BlockId id);
  void Release(BlockId id);
  uint32_t ref_count(BlockId id) const;  // 0 = free

  // First key / value row of KV head `head` in a block's part of layer visit `layer`
  // (ModelConfig::num_visits; the layer itself unless the model loops); rows of one head are
  // contiguous, [kBlockTokens, width] of f16 or f32, with the widths of ModelConfig::CachedBy.
  void* Keys(BlockId id, int layer, int head);
  void* Values(BlockId id, int layer, int head);

  // A free block with the contents of `id`.
  BlockId Copy(BlockId id);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Puts x[n] into row `row` of rows of n elements.
void StoreCachedRow(KvType type, const float* x, size_t n, void* first_row, size_t row);

// The cached state of one token sequence. Movable; the pool must outlive it.
class Sequence {
 public:
  explicit Sequence(KvPool* pool);
  ~Sequence();
  Sequence(Sequence&&) noexcept;
  Sequence& operator=(Sequence&&) noexcept;

  size_t length() const { return length_; }
  KvPool& pool() const { return *pool_; }
  const std::vector<BlockId>& blocks() const { return blocks_; }

  // A second sequence with the first `length` positions, sharing whole blocks and copying the last
  // partial one.
  Sequence Fork(size_t length) const;
  // Forgets positions from `length` on.
  void Truncate(size_t length);
  // Blocks that Reserve(n) would take from the pool.
  size_t BlocksNeeded(size_t n) const;
  // Makes room for `n` more positions (unsharing the last block if needed); length is unchanged.
  // When the pool has too few blocks it throws Error{kOutOfBudget} and takes none.
  void Reserve(size_t n);
  // Counts n reserved positions as filled: the model calls it when a step is complete.
  void Commit(size_t n);

 private:
  KvPool* pool_;
  std::vector<BlockId> blocks_;
  size_t length_ = 0;
};

}  // namespace moewe::model

#endif  // MOEWE_MODEL_KV_CACHE_H_
