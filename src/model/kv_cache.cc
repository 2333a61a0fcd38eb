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
using BlockMemory = std::unique_ptr<uint8_t[], FreeDeleter>;

constexpr size_t kCacheLine = 64;

size_t ElementBytes(KvType type) { return type == KvType::kF16 ? 2 : 4; }

size_t RowsBytes(uint32_t width, KvType type) {
  return size_t{kBlockTokens} * width * ElementBytes(type);
}

}  // namespace

// A block is one allocation: for each visit of a layer the keys of all its KV heads, then their
// values.
struct KvPool::Impl {
  struct LayerPlace {
    size_t keys = 0;         // byte offset of head 0's keys
    size_t values = 0;       // of head 0's values
    size_t key_bytes = 0;    // between heads' keys
    size_t value_bytes = 0;  // between heads' values
  };

  KvType type;
  size_t max_blocks;
  size_t block_bytes;
  std::vector<LayerPlace> layers;
  std::vector<BlockMemory> memory;  // by BlockId; grows as blocks are first used
  std::vector<uint32_t> refs;
  std::vector<BlockId> free_list;  // allocated before, in use by nobody
};

KvPool::KvPool(const ModelConfig& config, KvType type, size_t max_blocks)
    : impl_(std::make_unique<Impl>()) {
  impl_->type = type;
  impl_->max_blocks = max_blocks;
  impl_->block_bytes = BytesPerBlock(config, type);
  size_t offset = 0;
  for (uint32_t visit = 0; visit < config.num_visits(); ++visit) {
    const auto rows = config.CachedBy(config.layers[visit % config.num_layers]);
    const size_t key_bytes = RowsBytes(rows.key_width, type);
    const size_t value_bytes = RowsBytes(rows.value_width, type);
    impl_->layers.push_back({offset, offset + rows.heads * key_bytes, key_bytes, value_bytes});
    offset += rows.heads * (key_bytes + value_bytes);
  }
}

KvPool::~KvPool() = default;

KvType KvPool::type() const { return impl_->type; }

uint64_t KvPool::BytesPerBlock(const ModelConfig& config, KvType type) {
  uint64_t bytes = 0;
  for (const LayerConfig& layer : config.layers) {
    const auto rows = config.CachedBy(layer);
    bytes +=
        rows.heads * uint64_t{RowsBytes(rows.key_width, type) + RowsBytes(rows.value_width, type)};
  }
  bytes *= config.num_loops;
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

size_t KvPool::max_blocks() const { return impl_->max_blocks; }

size_t KvPool::free_blocks() const {
  return impl_->max_blocks - impl_->memory.size() + impl_->free_list.size();
}

BlockId KvPool::Allocate() {
  Impl& pool = *impl_;
  if (!pool.free_list.empty()) {
    const BlockId id = pool.free_list.back();
    pool.free_list.pop_back();
    pool.refs[id] = 1;
    return id;
  }
  if (pool.memory.size() >= pool.max_blocks) {
    throw Error(ErrorCode::kOutOfBudget, "the KV cache is full: all " +
                                             std::to_string(pool.max_blocks * kBlockTokens) +
                                             " positions are in use");
  }
  if (pool.memory.size() == pool.memory.capacity()) {
    const size_t capacity = std::max<size_t>(64, 2 * pool.memory.size());
    pool.refs.reserve(capacity);
    pool.free_list.reserve(capacity);  // so that Release never allocates
    pool.memory.reserve(capacity);
  }
  BlockMemory block(static_cast<uint8_t*>(std::aligned_alloc(kCacheLine, pool.block_bytes)));
  if (block == nullptr) throw std::bad_alloc();
  const BlockId id = static_cast<BlockId>(pool.memory.size());
  pool.memory.push_back(std::move(block));
  pool.refs.push_back(1);
  return id;
}

void KvPool::Retain(BlockId id) { ++impl_->refs[id]; }

void KvPool::Release(BlockId id) {
  if (--impl_->refs[id] == 0) impl_->free_list.push_back(id);
}

uint32_t KvPool::ref_count(BlockId id) const { return impl_->refs[id]; }

void* KvPool::Keys(BlockId id, int layer, int head) {
  const Impl::LayerPlace& place = impl_->layers[static_cast<size_t>(layer)];
  return impl_->memory[id].get() + place.keys + static_cast<size_t>(head) * place.key_bytes;
}

void* KvPool::Values(BlockId id, int layer, int head) {
  const Impl::LayerPlace& place = impl_->layers[static_cast<size_t>(layer)];
  return impl_->memory[id].get() + place.values + static_cast<size_t>(head) * place.value_bytes;
}

BlockId KvPool::Copy(BlockId id) {
  const BlockId copy = Allocate();
  std::memcpy(impl_->memory[copy].get(), impl_->memory[id].get(), impl_->block_bytes);
  return copy;
}

void StoreCachedRow(KvType type, const float* x, size_t n, void* first_row, size_t row) {
  if (type == KvType::kF32) {
    std::memcpy(static_cast<float*>(first_row) + row * n, x, n * sizeof(float));
    return;
  }
  uint16_t* out = static_cast<uint16_t*>(first_row) + row * n;
  for (size_t i = 0; i < n; ++i) out[i] = F32ToF16(x[i]);
}

Sequence::Sequence(KvPool* pool) : pool_(pool) {}

Sequence::~Sequence() {
  for (BlockId id : blocks_) pool_->Release(id);
}

Sequence::Sequence(Sequence&& other) noexcept
    : pool_(other.pool_),
      blocks_(std::exchange(other.blocks_, {})),
      length_(std::exchange(other.length_, 0)) {}

Sequence& Sequence::operator=(Sequence&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(blocks_, other.blocks_);
  std::swap(length_, other.length_);
  return *this;
}

Sequence Sequence::Fork(size_t length) const {
  Sequence fork(pool_);
  const size_t whole = length / kBlockTokens;
  fork.blocks_.reserve(BlocksFor(length));
  for (size_t i = 0; i < whole; ++i) {
    pool_->Retain(blocks_[i]);
    fork.blocks_.push_back(blocks_[i]);
  }
  if (length % kBlockTokens != 0) fork.blocks_.push_back(pool_->Copy(blocks_[whole]));
  fork.length_ = length;
  return fork;
}

void Sequence::Truncate(size_t length) {
  if (length > length_) return;
  length_ = length;
  while (blocks_.size() > BlocksFor(length)) {
    pool_->Release(blocks_.back());
    blocks_.pop_back();
  }
}

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

void Sequence::Commit(size_t n) { length_ += n; }

}  // namespace moewe::model
