#include "model/kv_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

#include "model/config.h"
#include "moewe/error.h"

namespace moewe::model {
namespace {

ModelConfig TwoLayers() {
  ModelConfig config;
  config.num_layers = 2;
  config.layers.resize(2);
  config.layers[0].num_kv_heads = 2;
  config.layers[0].head_dim = 6;
  config.layers[1].num_kv_heads = 1;
  config.layers[1].head_dim = 10;
  return config;
}

// The f32 row of position `p` in layer 0, head 1.
float* KeyRow(Sequence& sequence, size_t p) {
  auto* keys = static_cast<float*>(sequence.pool().Keys(sequence.blocks()[p / kBlockTokens], 0, 1));
  return keys + (p % kBlockTokens) * 6;
}

void Append(Sequence& sequence, size_t n, float value) {
  sequence.Reserve(n);
  for (size_t i = 0; i < n; ++i) {
    *KeyRow(sequence, sequence.length() + i) = value + static_cast<float>(sequence.length() + i);
  }
  sequence.Commit(n);
}

TEST(KvPool, PartsOfABlockDoNotOverlap) {
  const ModelConfig config = TwoLayers();
  for (KvType type : {KvType::kF16, KvType::kF32, KvType::kQ8}) {
    KvPool pool(config, type, 2);
    const BlockId a = pool.Allocate();
    const BlockId b = pool.Allocate();
    uint64_t bytes = 0;
    uint8_t mark = 0;
    std::vector<std::pair<void*, size_t>> parts;
    for (BlockId id : {a, b}) {
      for (int layer = 0; layer < 2; ++layer) {
        const LayerConfig& shape = config.layers[static_cast<size_t>(layer)];
        for (int head = 0; head < static_cast<int>(shape.num_kv_heads); ++head) {
          const size_t n = kBlockTokens * kernels::KvRowBytes(type, shape.head_dim);
          parts.emplace_back(pool.Keys(id, layer, head), n);
          parts.emplace_back(pool.Values(id, layer, head), n);
          if (id == a) bytes += 2 * n;
        }
      }
    }
    for (auto& [data, n] : parts) std::memset(data, ++mark, n);
    mark = 0;
    for (auto& [data, n] : parts) {
      ++mark;
      for (size_t i = 0; i < n; ++i) ASSERT_EQ(static_cast<uint8_t*>(data)[i], mark);
    }
    EXPECT_GE(KvPool::BytesPerBlock(config, type), bytes);
    EXPECT_LT(KvPool::BytesPerBlock(config, type), bytes + 64);
  }
}

TEST(KvPool, CountsReferencesAndReusesBlocks) {
  KvPool pool(TwoLayers(), KvType::kF16, 2);
  EXPECT_EQ(pool.free_blocks(), 2u);
  const BlockId a = pool.Allocate();
  pool.Retain(a);
  EXPECT_EQ(pool.ref_count(a), 2u);
  pool.Release(a);
  EXPECT_EQ(pool.free_blocks(), 1u);
  pool.Release(a);
  EXPECT_EQ(pool.free_blocks(), 2u);
  EXPECT_EQ(pool.Allocate(), a);
  pool.Allocate();
  try {
    pool.Allocate();
    FAIL() << "a third block of two";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfBudget);
  }
}

TEST(Sequence, ForkSharesWholeBlocksAndCopiesThePartialOne) {
  KvPool pool(TwoLayers(), KvType::kF32, 8);
  Sequence first(&pool);
  Append(first, 40, 0.5f);
  Sequence second = first.Fork(36);
  EXPECT_EQ(second.length(), 36u);
  EXPECT_EQ(second.blocks()[0], first.blocks()[0]);
  EXPECT_NE(second.blocks()[1], first.blocks()[1]);
  EXPECT_EQ(pool.ref_count(first.blocks()[0]), 2u);
  EXPECT_EQ(*KeyRow(second, 35), 35.5f);
  Append(second, 4, 1000.0f);
  EXPECT_EQ(*KeyRow(first, 36), 36.5f);
  EXPECT_EQ(*KeyRow(second, 36), 1036.0f);
  EXPECT_EQ(pool.free_blocks(), 5u);
}

TEST(Sequence, WritingAfterTruncateIntoASharedBlockCopiesIt) {
  KvPool pool(TwoLayers(), KvType::kF32, 8);
  Sequence first(&pool);
  Append(first, 64, 0.5f);
  Sequence second = first.Fork(64);
  EXPECT_EQ(pool.free_blocks(), 6u);
  second.Truncate(40);
  EXPECT_EQ(second.blocks()[1], first.blocks()[1]);
  Append(second, 2, 1000.0f);
  EXPECT_NE(second.blocks()[1], first.blocks()[1]);
  EXPECT_EQ(*KeyRow(first, 40), 40.5f);
  EXPECT_EQ(*KeyRow(second, 39), 39.5f);
  EXPECT_EQ(*KeyRow(second, 40), 1040.0f);
  EXPECT_EQ(pool.ref_count(first.blocks()[1]), 1u);
}

TEST(Sequence, TruncateGivesBlocksBack) {
  KvPool pool(TwoLayers(), KvType::kF16, 4);
  Sequence sequence(&pool);
  sequence.Reserve(100);
  sequence.Commit(100);
  EXPECT_EQ(pool.free_blocks(), 0u);
  sequence.Truncate(33);
  EXPECT_EQ(pool.free_blocks(), 2u);
  sequence.Truncate(32);
  EXPECT_EQ(pool.free_blocks(), 3u);
  sequence.Truncate(50);  // no effect: it is shorter already
  EXPECT_EQ(sequence.length(), 32u);
  sequence.Truncate(0);
  EXPECT_EQ(pool.free_blocks(), 4u);
}

TEST(Sequence, OutOfBudgetTakesNothing) {
  KvPool pool(TwoLayers(), KvType::kF16, 3);
  Sequence sequence(&pool);
  sequence.Reserve(40);
  sequence.Commit(40);
  try {
    sequence.Reserve(64);
    FAIL() << "reserved more than the pool has";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfBudget);
  }
  EXPECT_EQ(sequence.length(), 40u);
  EXPECT_EQ(pool.free_blocks(), 1u);
  sequence.Reserve(56);
  EXPECT_EQ(pool.free_blocks(), 0u);
}

TEST(Sequence, MovingHandsTheBlocksOver) {
  KvPool pool(TwoLayers(), KvType::kF16, 4);
  {
    Sequence first(&pool);
    first.Reserve(10);
    first.Commit(10);
    Sequence second(std::move(first));
    EXPECT_EQ(second.length(), 10u);
    Sequence third(&pool);
    third = std::move(second);
    EXPECT_EQ(third.length(), 10u);
    EXPECT_EQ(pool.free_blocks(), 3u);
  }
  EXPECT_EQ(pool.free_blocks(), 4u);
}

// A model whose first layer has a state of 3 * 8 floats.
ModelConfig Recurrent() {
  ModelConfig config = TwoLayers();
  config.hidden_size = 8;
  config.linear.conv_taps = 4;
  config.layers[0].mixer = MixerKind::kShortConv;
  return config;
}

// A step of n positions whose state says how many there are then.
void Step(Sequence& sequence, size_t n) {
  sequence.Reserve(n);
  *sequence.NextState(0) = static_cast<float>(sequence.length() + n);
  sequence.Commit(n);
  ASSERT_EQ(*sequence.State(0), static_cast<float>(sequence.length()));
}

TEST(States, AreOfRecurrentModelsOnly) {
  EXPECT_EQ(KvPool::BytesPerState(TwoLayers()), 0u);
  KvPool plain(TwoLayers(), KvType::kF32, 4);
  EXPECT_FALSE(plain.recurrent());
  Sequence sequence(&plain);
  Append(sequence, 40, 0.0f);
  EXPECT_EQ(sequence.ReusableLength(17), 17u);
  EXPECT_EQ(plain.free_states(), plain.max_states());
  EXPECT_EQ(KvPool::BytesPerState(Recurrent()), 2u * 64);  // 96, in whole cache lines
}

TEST(States, AreKeptAfterPartsOfAPromptNotAfterSingleTokens) {
  KvPool pool(Recurrent(), KvType::kF32, 8, 4);
  Sequence sequence(&pool);
  EXPECT_EQ(sequence.State(0), nullptr);
  Step(sequence, 10);
  Step(sequence, 10);
  for (int i = 0; i < 5; ++i) Step(sequence, 1);
  EXPECT_EQ(sequence.ReusableLength(100), 25u);
  EXPECT_EQ(sequence.ReusableLength(24), 20u);
  EXPECT_EQ(sequence.ReusableLength(19), 10u);
  EXPECT_EQ(sequence.ReusableLength(9), 0u);
  EXPECT_EQ(pool.free_states(), 1u);  // what a step needs is always left
}

TEST(States, OfTooManyTheOldestButOneGoes) {
  KvPool pool(Recurrent(), KvType::kF32, 8, 16);
  Sequence sequence(&pool);
  for (int i = 0; i < 6; ++i) Step(sequence, 10);
  EXPECT_EQ(sequence.ReusableLength(59), 50u);
  EXPECT_EQ(sequence.ReusableLength(49), 10u);
  EXPECT_EQ(pool.free_states(), 16u - (kStatesPerSequence - 1));
}

TEST(States, ForkAndTruncateGoBackToOneThatWasKept) {
  KvPool pool(Recurrent(), KvType::kF32, 8, 8);
  Sequence sequence(&pool);
  Step(sequence, 10);
  Step(sequence, 7);
  Step(sequence, 1);
  Sequence fork = sequence.Fork(10);
  EXPECT_EQ(*fork.State(0), 10.0f);
  Step(fork, 1);
  EXPECT_EQ(fork.ReusableLength(10), 10u);
  EXPECT_EQ(*sequence.State(0), 18.0f);
  sequence.Truncate(17);
  EXPECT_EQ(*sequence.State(0), 17.0f);
  EXPECT_THROW(static_cast<void>(sequence.Fork(9)), Error);
  EXPECT_THROW(sequence.Truncate(16), Error);
  EXPECT_EQ(sequence.length(), 17u);
  sequence.Truncate(0);
  EXPECT_EQ(sequence.State(0), nullptr);
  {
    const Sequence gone = std::move(fork);
  }
  EXPECT_EQ(pool.free_states(), pool.max_states());
}

TEST(States, WithoutRoomThoseToGoBackToAreGivenUp) {
  KvPool pool(Recurrent(), KvType::kF32, 8, 3);
  Sequence sequence(&pool);
  Step(sequence, 10);
  Step(sequence, 10);
  Sequence other(&pool);
  EXPECT_TRUE(other.HasRoom(1));
  Step(other, 1);
  EXPECT_TRUE(sequence.HasRoom(1));
  Step(sequence, 1);
  EXPECT_EQ(sequence.ReusableLength(20), 20u);
  EXPECT_EQ(sequence.ReusableLength(19), 0u);
  // Now neither can go on but by giving up what the other one needs.
  EXPECT_TRUE(sequence.HasRoom(1));
  EXPECT_FALSE(other.HasRoom(1));
  EXPECT_THROW(other.Reserve(1), Error);
  EXPECT_EQ(other.length(), 1u);
  EXPECT_EQ(*other.State(0), 1.0f);
}

// A step of n positions, the last `drafts` of which may be taken back.
void StepWithDrafts(Sequence& sequence, size_t n, size_t drafts) {
  sequence.Reserve(n);
  ASSERT_TRUE(sequence.KeepInside(n - drafts));
  *sequence.NextState(0) = static_cast<float>(sequence.length() + n);
  ASSERT_EQ(sequence.rows_inside(), n - drafts);
  *sequence.StateInside(0) = static_cast<float>(sequence.length() + n - drafts);
  sequence.Commit(n);
}

TEST(States, DraftsAreTakenBackToWhatIsCertain) {
  KvPool pool(Recurrent(), KvType::kF32, 8, StatesFor(1, true));
  Sequence sequence(&pool);
  Step(sequence, 10);
  Step(sequence, 10);
  for (int i = 0; i < 3; ++i) {
    SCOPED_TRACE(i);
    const size_t length = sequence.length();
    StepWithDrafts(sequence, 5, 4);  // all are right
    sequence.Settle(length + 5);
    EXPECT_EQ(*sequence.State(0), static_cast<float>(length + 5));
    EXPECT_EQ(sequence.ReusableLength(length + 4), 20u);
    StepWithDrafts(sequence, 5, 3);  // the second one isn't: the first is computed again
    sequence.Settle(length + 8);
    EXPECT_EQ(sequence.length(), length + 7);
    EXPECT_EQ(*sequence.State(0), static_cast<float>(length + 7));
    sequence.Reserve(2);  // without drafts
    *sequence.NextState(0) = static_cast<float>(length + 9);
    sequence.Commit(2);
    sequence.Settle(length + 9);
    EXPECT_EQ(sequence.ReusableLength(length + 8), 20u);
    // What the prompt left is still there.
    EXPECT_EQ(sequence.ReusableLength(19), 10u);
  }
  Sequence fork = sequence.Fork(20);
  EXPECT_EQ(*fork.State(0), 20.0f);
}

TEST(States, AStepThatTurnsOutShorterKeepsNothingInside) {
  KvPool pool(Recurrent(), KvType::kF32, 8, 5);
  {
    Sequence sequence(&pool);
    Step(sequence, 3);
    sequence.Reserve(4);
    ASSERT_TRUE(sequence.KeepInside(1));
    *sequence.NextState(0) = 4.0f;
    sequence.Commit(1);
    sequence.Settle(4);
    EXPECT_EQ(*sequence.State(0), 4.0f);
    sequence.Reserve(1);
    EXPECT_TRUE(sequence.KeepInside(1));
    EXPECT_TRUE(sequence.KeepInside(1));
    // Nobody has one to give.
    Sequence other(&pool);
    EXPECT_EQ(pool.free_states(), 1u);
    other.Reserve(2);
    EXPECT_FALSE(other.KeepInside(1));
    other.Commit(0);
  }
  EXPECT_EQ(pool.free_states(), 5u);
}

TEST(States, AStepThatFailsLeavesTheOldOne) {
  KvPool pool(Recurrent(), KvType::kF32, 1, 4);
  Sequence sequence(&pool);
  Step(sequence, 30);
  EXPECT_THROW(sequence.Reserve(10), Error);
  EXPECT_EQ(*sequence.State(0), 30.0f);
  sequence.Reserve(1);
  *sequence.NextState(0) = -1.0f;  // and nothing is committed
  EXPECT_EQ(*sequence.State(0), 30.0f);
  Step(sequence, 2);
}

}  // namespace
}  // namespace moewe::model
