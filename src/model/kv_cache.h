// What sequences keep of the tokens they hold: keys and values in fixed blocks that sequences can
// share, and the states of recurrent layers.
#ifndef MOEWE_MODEL_KV_CACHE_H_
#define MOEWE_MODEL_KV_CACHE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/kv_rows.h"

namespace moewe::model {

struct ModelConfig;

using kernels::KvType;
using kernels::KvTypeName;
using BlockId = uint32_t;
using StateId = uint32_t;

// Positions a block holds, in every visit of a layer.
inline constexpr uint32_t kBlockTokens = 32;

constexpr size_t BlocksFor(size_t positions) {
  return (positions + kBlockTokens - 1) / kBlockTokens;
}

// Recurrent states of a sequence: the one it is in, the one that a step writes, and those to which
// it can go back. A step that may be taken back in part writes one more.
inline constexpr size_t kStatesToRun = 2;
inline constexpr size_t kStatesPerSequence = 4;

// Of all sequences, if one at a time takes such steps.
constexpr size_t StatesFor(size_t sequences, bool drafts) {
  return sequences * kStatesPerSequence + (drafts ? 1 : 0);
}

// All blocks of one model, allocated as needed up to `max_blocks`, and likewise its states: one is
// what all recurrent layers together carry from one position to the next. Both are
// reference-counted so that sequences with a common prefix share them. Not thread-safe: used by the
// thread that runs the model.
class KvPool {
 public:
  KvPool(const ModelConfig& config, KvType type, size_t max_blocks,
         size_t max_states = kStatesPerSequence);
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
  // contiguous, [kBlockTokens, width] as the type has them, with the widths of
  // ModelConfig::CachedBy.
  void* Keys(BlockId id, int layer, int head);
  void* Values(BlockId id, int layer, int head);

  // A free block with the contents of `id`.
  BlockId Copy(BlockId id);

  // Whether the model has recurrent layers; only then there are states.
  bool recurrent() const;
  static uint64_t BytesPerState(const ModelConfig& config);
  size_t max_states() const;
  size_t free_states() const;
  StateId AllocateState();  // throws Error{kOutOfBudget} when none is free
  void RetainState(StateId id);
  void ReleaseState(StateId id);
  uint32_t state_ref_count(StateId id) const;
  // The part of layer visit `layer`: ModelConfig::StateFloats of them.
  float* State(StateId id, int layer);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Puts x[n] into row `row` of rows of n elements.
void StoreCachedRow(KvType type, const float* x, size_t n, void* first_row, size_t row);

// What is cached of one token sequence. Movable; the pool must outlive it.
class Sequence {
 public:
  explicit Sequence(KvPool* pool);
  ~Sequence();
  Sequence(Sequence&&) noexcept;
  Sequence& operator=(Sequence&&) noexcept;

  size_t length() const { return length_; }
  KvPool& pool() const { return *pool_; }
  const std::vector<BlockId>& blocks() const { return blocks_; }

  // The most positions, at most `length`, that Fork and Truncate can go back to. In a model with
  // recurrent layers that is where a state was kept: after the last of the chunks of its prompt.
  size_t ReusableLength(size_t length) const;
  // A second sequence with the first `length` positions (a ReusableLength), sharing whole blocks
  // and copying the last partial one.
  Sequence Fork(size_t length) const;
  // Forgets positions from `length` (a ReusableLength) on.
  void Truncate(size_t length);
  // Blocks that Reserve(n) would take from the pool.
  size_t BlocksNeeded(size_t n) const;
  // Whether Reserve(n) finds what it needs.
  bool HasRoom(size_t n) const;
  // Makes room for `n` more positions (unsharing the last block if needed, giving up states that
  // were only kept to go back to); length is unchanged. When the pool has too few blocks or states
  // it throws Error{kOutOfBudget} and takes no block.
  void Reserve(size_t n);
  // Of the step that is reserved: the sequence may go back to any position from its first `rows`
  // on, or at least, with recurrent layers, to there: a state is kept then as well. False if none
  // is free.
  bool KeepInside(size_t rows);
  // Counts n reserved positions as filled: the model calls it when a step is complete.
  void Commit(size_t n);
  // After a step of an answer: forgets positions from `length` on, and in a model with recurrent
  // layers those before it for which no state was kept, to be computed again. The state stays only
  // until the next step, and no other one that was kept inside of this step does.
  void Settle(size_t length);

  // Of a visit of a recurrent layer: the state after the last position (null: there is none, all
  // zeros), and where a step, whose positions are reserved, writes the one after its own.
  const float* State(int layer) const;
  float* NextState(int layer) const;
  // Where it also writes the one after its first `rows_inside` positions, unless these are 0 or
  // all of them.
  size_t rows_inside() const { return rows_inside_; }
  float* StateInside(int layer) const;

  // What a prediction head reads: hidden states [width] of the last step's positions from `first`
  // on, at least of all that the sequence can end with. Null: not known, as after a Fork.
  void KeepHidden(size_t first, std::span<const float> rows, size_t width);
  const float* HiddenAt(size_t position) const;
  void DropHidden() { hidden_ = {}; }

 private:
  struct Kept {
    size_t length;
    StateId state;
    bool stays;  // when later ones come
  };
  size_t FreedByForgetting() const;
  void MakeRoomForState();
  void Release(std::vector<Kept>::iterator kept);
  void ReleaseFleeting(size_t end);

  KvPool* pool_;
  std::vector<BlockId> blocks_;
  std::vector<Kept> states_;  // ascending; the last one is that after length_, if length_ > 0
  std::optional<StateId> next_, inside_;
  size_t rows_inside_ = 0;  // what KeepInside said of the step that is reserved
  std::vector<float> hidden_;
  size_t hidden_from_ = 0, hidden_width_ = 0;
  size_t length_ = 0;
};

}  // namespace moewe::model

#endif  // MOEWE_MODEL_KV_CACHE_H_
