#include "model/kv_cache.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "base/f16.h"
#include "model/config.h"
#include "moewe/error.h"

namespace moewe::model {
namespace {

struct FreeDeleter {
  void operator()(uint8_t* p) const { std::free(p); }
};
using Memory = std::unique_ptr<uint8_t[], FreeDeleter>;

constexpr size_t kCacheLine = 64;

uint64_t WholeLines(uint64_t bytes) {
  return (std::max<uint64_t>(bytes, 1) + kCacheLine - 1) / kCacheLine * kCacheLine;
}

size_t RowsBytes(uint32_t width, KvType type) {
  return kBlockTokens * kernels::KvRowBytes(type, width);
}

// Pieces of memory of one size, counted by reference.
class Pieces {
 public:
  Pieces(size_t bytes, size_t max) : bytes_(bytes), max_(max) {}

  size_t max() const { return max_; }
  size_t free() const { return max_ - memory_.size() + free_list_.size(); }
  uint32_t refs(uint32_t id) const { return refs_[id]; }
  uint8_t* at(uint32_t id) const { return memory_[id].get(); }

  // Nothing if all are in use.
  std::optional<uint32_t> Allocate() {
    if (!free_list_.empty()) {
      const uint32_t id = free_list_.back();
      free_list_.pop_back();
      refs_[id] = 1;
      return id;
    }
    if (memory_.size() >= max_) return std::nullopt;
    if (memory_.size() == memory_.capacity()) {
      const size_t capacity = std::max<size_t>(64, 2 * memory_.size());
      refs_.reserve(capacity);
      free_list_.reserve(capacity);  // so that Release never allocates
      memory_.reserve(capacity);
    }
    Memory piece(static_cast<uint8_t*>(std::aligned_alloc(kCacheLine, bytes_)));
    if (piece == nullptr) throw std::bad_alloc();
    memory_.push_back(std::move(piece));
    refs_.push_back(1);
    return static_cast<uint32_t>(memory_.size() - 1);
  }

  void Retain(uint32_t id) { ++refs_[id]; }
  void Release(uint32_t id) {
    if (--refs_[id] == 0) free_list_.push_back(id);
  }
  void Copy(uint32_t from, uint32_t to) { std::memcpy(at(to), at(from), bytes_); }

 private:
  const size_t bytes_, max_;
  std::vector<Memory> memory_;  // by id; grows as pieces are first used
  std::vector<uint32_t> refs_;
  std::vector<uint32_t> free_list_;  // allocated before, in use by nobody
};

}  // namespace

// A block: for each visit of a layer the keys of all its KV heads, then their values. A state: the
// visits' parts one behind the other.
struct KvPool::Impl {
  struct LayerPlace {
    size_t keys = 0;         // byte offset of head 0's keys
    size_t values = 0;       // of head 0's values
    size_t key_bytes = 0;    // between heads' keys
    size_t value_bytes = 0;  // between heads' values
    size_t state = 0;        // floats before its part of a state
  };

  KvType type;
  Pieces blocks;
  bool recurrent;
  Pieces states;
  std::vector<LayerPlace> layers;
};

KvPool::KvPool(const ModelConfig& config, KvType type, size_t max_blocks, size_t max_states)
    : impl_(new Impl{type,
                     Pieces(BytesPerBlock(config, type), max_blocks),
                     BytesPerState(config) > 0,
                     Pieces(BytesPerState(config), max_states),
                     {}}) {
  size_t offset = 0;
  size_t state = 0;
  for (uint32_t visit = 0; visit < config.num_cached_visits(); ++visit) {
    const LayerConfig& layer = config.LayerOfVisit(visit);
    const auto rows = config.CachedBy(layer);
    const size_t key_bytes = RowsBytes(rows.key_width, type);
    const size_t value_bytes = RowsBytes(rows.value_width, type);
    impl_->layers.push_back(
        {offset, offset + rows.heads * key_bytes, key_bytes, value_bytes, state});
    offset += rows.heads * (key_bytes + value_bytes);
    state += config.StateFloats(layer);
  }
}

KvPool::~KvPool() = default;

KvType KvPool::type() const { return impl_->type; }

uint64_t KvPool::BytesPerBlock(const ModelConfig& config, KvType type) {
  uint64_t bytes = 0;
  for (uint32_t visit = 0; visit < config.num_cached_visits(); ++visit) {
    const auto rows = config.CachedBy(config.LayerOfVisit(visit));
    bytes +=
        rows.heads * uint64_t{RowsBytes(rows.key_width, type) + RowsBytes(rows.value_width, type)};
  }
  return WholeLines(bytes);
}

size_t KvPool::max_blocks() const { return impl_->blocks.max(); }

size_t KvPool::free_blocks() const { return impl_->blocks.free(); }

BlockId KvPool::Allocate() {
  if (const auto id = impl_->blocks.Allocate()) return *id;
  throw Error(ErrorCode::kOutOfBudget, "the KV cache is full: all " +
                                           std::to_string(max_blocks() * kBlockTokens) +
                                           " positions are in use");
}

void KvPool::Retain(BlockId id) { impl_->blocks.Retain(id); }

void KvPool::Release(BlockId id) { impl_->blocks.Release(id); }

uint32_t KvPool::ref_count(BlockId id) const { return impl_->blocks.refs(id); }

void* KvPool::Keys(BlockId id, int layer, int head) {
  const Impl::LayerPlace& place = impl_->layers[static_cast<size_t>(layer)];
  return impl_->blocks.at(id) + place.keys + static_cast<size_t>(head) * place.key_bytes;
}

void* KvPool::Values(BlockId id, int layer, int head) {
  const Impl::LayerPlace& place = impl_->layers[static_cast<size_t>(layer)];
  return impl_->blocks.at(id) + place.values + static_cast<size_t>(head) * place.value_bytes;
}

BlockId KvPool::Copy(BlockId id) {
  const BlockId copy = Allocate();
  impl_->blocks.Copy(id, copy);
  return copy;
}

bool KvPool::recurrent() const { return impl_->recurrent; }

uint64_t KvPool::BytesPerState(const ModelConfig& config) {
  uint64_t floats = 0;
  for (const LayerConfig& layer : config.layers) floats += config.StateFloats(layer);
  return floats == 0 ? 0 : WholeLines(floats * config.num_loops * sizeof(float));
}

size_t KvPool::max_states() const { return impl_->states.max(); }

size_t KvPool::free_states() const { return impl_->states.free(); }

StateId KvPool::AllocateState() {
  if (const auto id = impl_->states.Allocate()) return *id;
  throw Error(ErrorCode::kOutOfBudget,
              "all " + std::to_string(max_states()) + " states of recurrent layers are in use");
}

void KvPool::RetainState(StateId id) { impl_->states.Retain(id); }

void KvPool::ReleaseState(StateId id) { impl_->states.Release(id); }

uint32_t KvPool::state_ref_count(StateId id) const { return impl_->states.refs(id); }

float* KvPool::State(StateId id, int layer) {
  return reinterpret_cast<float*>(impl_->states.at(id)) +
         impl_->layers[static_cast<size_t>(layer)].state;
}

void StoreCachedRow(KvType type, const float* x, size_t n, void* first_row, size_t row) {
  const size_t bytes = kernels::KvRowBytes(type, n);
  kernels::StoreKvRow(type, x, n, static_cast<uint8_t*>(first_row) + row * bytes);
}

namespace {

void RequireReusable(const Sequence& sequence, size_t length) {
  if (sequence.ReusableLength(length) == length) return;
  throw Error(ErrorCode::kInternal, "no state of the recurrent layers was kept after " +
                                        std::to_string(length) + " positions");
}

}  // namespace

Sequence::Sequence(KvPool* pool) : pool_(pool) {}

Sequence::~Sequence() {
  for (BlockId id : blocks_) pool_->Release(id);
  for (const Kept& kept : states_) pool_->ReleaseState(kept.state);
  if (next_) pool_->ReleaseState(*next_);
  if (inside_) pool_->ReleaseState(*inside_);
}

Sequence::Sequence(Sequence&& other) noexcept
    : pool_(other.pool_),
      blocks_(std::exchange(other.blocks_, {})),
      states_(std::exchange(other.states_, {})),
      next_(std::exchange(other.next_, std::nullopt)),
      inside_(std::exchange(other.inside_, std::nullopt)),
      rows_inside_(std::exchange(other.rows_inside_, 0)),
      hidden_(std::exchange(other.hidden_, {})),
      hidden_from_(other.hidden_from_),
      hidden_width_(other.hidden_width_),
      length_(std::exchange(other.length_, 0)) {}

Sequence& Sequence::operator=(Sequence&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(blocks_, other.blocks_);
  std::swap(states_, other.states_);
  std::swap(next_, other.next_);
  std::swap(inside_, other.inside_);
  std::swap(rows_inside_, other.rows_inside_);
  std::swap(hidden_, other.hidden_);
  std::swap(hidden_from_, other.hidden_from_);
  std::swap(hidden_width_, other.hidden_width_);
  std::swap(length_, other.length_);
  return *this;
}

size_t Sequence::ReusableLength(size_t length) const {
  length = std::min(length, length_);
  if (!pool_->recurrent()) return length;
  size_t reusable = 0;
  for (const Kept& kept : states_) {
    if (kept.length <= length) reusable = kept.length;
  }
  return reusable;
}

Sequence Sequence::Fork(size_t length) const {
  RequireReusable(*this, length);
  Sequence fork(pool_);
  const size_t whole = length / kBlockTokens;
  fork.blocks_.reserve(BlocksFor(length));
  for (size_t i = 0; i < whole; ++i) {
    pool_->Retain(blocks_[i]);
    fork.blocks_.push_back(blocks_[i]);
  }
  if (length % kBlockTokens != 0) fork.blocks_.push_back(pool_->Copy(blocks_[whole]));
  for (const Kept& kept : states_) {
    if (kept.length > length) break;
    fork.states_.push_back(kept);
    pool_->RetainState(kept.state);
  }
  if (!fork.states_.empty()) fork.states_.back().stays = true;
  fork.length_ = length;
  return fork;
}

void Sequence::Truncate(size_t length) {
  if (length > length_) return;
  RequireReusable(*this, length);
  length_ = length;
  while (blocks_.size() > BlocksFor(length)) {
    pool_->Release(blocks_.back());
    blocks_.pop_back();
  }
  while (!states_.empty() && states_.back().length > length) Release(states_.end() - 1);
  if (!states_.empty()) states_.back().stays = true;
}

void Sequence::Settle(size_t length) {
  Truncate(ReusableLength(length));
  if (states_.empty()) return;
  states_.back().stays = false;
  ReleaseFleeting(states_.size() - 1);
}

bool Sequence::HasRoom(size_t n) const {
  if (BlocksNeeded(n) > pool_->free_blocks()) return false;
  return n == 0 || !pool_->recurrent() || next_ || pool_->free_states() > 0 ||
         FreedByForgetting() > 0;
}

// States that would be free if all that are kept to go back to were given up.
size_t Sequence::FreedByForgetting() const {
  size_t freed = 0;
  for (size_t i = 0; i + 1 < states_.size(); ++i) {
    freed += pool_->state_ref_count(states_[i].state) == 1 ? 1 : 0;
  }
  return freed;
}

void Sequence::Release(std::vector<Kept>::iterator kept) {
  pool_->ReleaseState(kept->state);
  states_.erase(kept);
}

// Of the first `end` states, those that do not stay.
void Sequence::ReleaseFleeting(size_t end) {
  for (size_t i = end; i-- > 0;) {
    if (!states_[i].stays) Release(states_.begin() + static_cast<ptrdiff_t>(i));
  }
}

void Sequence::MakeRoomForState() {
  while (pool_->free_states() == 0 && FreedByForgetting() > 0) Release(states_.begin());
}

bool Sequence::KeepInside(size_t rows) {
  if (pool_->recurrent() && !inside_) {
    MakeRoomForState();
    if (pool_->free_states() == 0) return false;
    inside_ = pool_->AllocateState();
  }
  rows_inside_ = rows;
  return true;
}

const float* Sequence::State(int layer) const {
  return length_ == 0 ? nullptr : pool_->State(states_.back().state, layer);
}

float* Sequence::NextState(int layer) const { return pool_->State(*next_, layer); }

void Sequence::KeepHidden(size_t first, std::span<const float> rows, size_t width) {
  hidden_.assign(rows.begin(), rows.end());
  hidden_from_ = first;
  hidden_width_ = width;
}

const float* Sequence::HiddenAt(size_t position) const {
  if (position < hidden_from_ || position >= length_) return nullptr;
  const size_t at = (position - hidden_from_) * hidden_width_;
  return at < hidden_.size() ? hidden_.data() + at : nullptr;
}

float* Sequence::StateInside(int layer) const { return pool_->State(*inside_, layer); }

size_t Sequence::BlocksNeeded(size_t n) const {
  const size_t needed = BlocksFor(length_ + n);
  const size_t fresh = needed - std::min(needed, blocks_.size());
  const bool copies =
      n > 0 && length_ % kBlockTokens != 0 && pool_->ref_count(blocks_[length_ / kBlockTokens]) > 1;
  return fresh + (copies ? 1 : 0);
}

void Sequence::Reserve(size_t n) {
  const size_t old_blocks = blocks_.size();
  const size_t needed = BlocksFor(length_ + n);
  try {
    if (n > 0 && pool_->recurrent() && !next_) {
      MakeRoomForState();
      states_.reserve(kStatesPerSequence + 2);  // so that Commit never allocates
      next_ = pool_->AllocateState();
    }
    if (needed > blocks_.capacity()) blocks_.reserve(std::max(needed, 2 * blocks_.capacity()));
    while (blocks_.size() < needed) blocks_.push_back(pool_->Allocate());
    // A partly filled block that another sequence also holds must not be written into.
    if (n > 0 && length_ % kBlockTokens != 0) {
      BlockId& last = blocks_[length_ / kBlockTokens];
      if (pool_->ref_count(last) > 1) {
        const BlockId copy = pool_->Copy(last);
        pool_->Release(last);
        last = copy;
      }
    }
  } catch (...) {
    while (blocks_.size() > old_blocks) {
      pool_->Release(blocks_.back());
      blocks_.pop_back();
    }
    throw;
  }
}

void Sequence::Commit(size_t n) {
  const size_t before = std::exchange(length_, length_ + n);
  const size_t rows_inside = std::exchange(rows_inside_, 0);
  if (n == 0 || !pool_->recurrent()) return;
  // States after parts of a prompt stay: another prompt may begin like it. Those after single
  // tokens go, and of too many the oldest but one: what all begin with is likely to be the first.
  ReleaseFleeting(states_.size());
  if (states_.size() + kStatesToRun > kStatesPerSequence) Release(states_.begin() + 1);
  if (inside_ && rows_inside < n) {
    states_.push_back({before + rows_inside, *inside_, false});
  } else if (inside_) {
    pool_->ReleaseState(*inside_);
  }
  inside_.reset();
  states_.push_back({length_, *next_, n > 1});
  next_.reset();
}

}  // namespace moewe::model
