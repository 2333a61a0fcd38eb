// Far into a sequence: past sliding windows and past the length that a rope was stretched from, the
// bits of a position still depend on the tokens before it alone, and memory grows with the KV cache
// alone.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "golden.h"
#include "memory_checkpoint.h"
#include "model/kv_cache.h"
#include "model/model.h"
#include "tiny_model.h"

namespace moewe::model {
namespace {

std::vector<TokenId> RandomIds(size_t n, uint32_t vocab, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> ids(n);
  for (TokenId& id : ids) id = static_cast<TokenId>(random() % vocab);
  return ids;
}

// Logits of the last token of `ids`, which follow what `sequence` holds, `chunk` at a time.
std::vector<float> LastLogits(Model* model, Sequence* sequence, std::span<const TokenId> ids,
                              size_t chunk) {
  std::vector<float> logits;
  for (size_t at = 0; at < ids.size(); at += chunk) {
    const size_t n = std::min(chunk, ids.size() - at);
    const bool last = at + n == ids.size();
    const SequenceChunk step{sequence, ids.subspan(at, n),
                             last ? SequenceChunk::Logits::kLast : SequenceChunk::Logits::kNone};
    model->Forward({&step, 1}, &logits);
  }
  return logits;
}

struct LongCase {
  const char* family;
  size_t length;
  uint32_t window;  // of every layer; 0 = some layers see everything
  KvType type;
};

class LongContext : public testing::TestWithParam<LongCase> {
 protected:
  LongContext() {
    LoadOptions options;
    options.activations = kernels::Activations::kF32;
    model_ = Model::Load(
        formats::OpenCheckpoint(golden::Path(std::string("hf/") + GetParam().family).string()),
        options, &threads_);
    pool_ = std::make_unique<KvPool>(model_->config(), GetParam().type, 200);
    ids_ = RandomIds(GetParam().length, model_->config().vocab_size, 3);
  }

  std::vector<float> Fresh(std::span<const TokenId> ids, size_t chunk) {
    Sequence sequence(pool_.get());
    return LastLogits(model_.get(), &sequence, ids, chunk);
  }

  ThreadPool threads_{2};
  std::unique_ptr<Model> model_;
  std::unique_ptr<KvPool> pool_;
  std::vector<TokenId> ids_;
};

TEST_P(LongContext, ChunksDoNotMatter) {
  const std::vector<float> whole = Fresh(ids_, ids_.size());
  for (const float logit : whole) ASSERT_TRUE(std::isfinite(logit));
  EXPECT_EQ(Fresh(ids_, 7), whole);
  EXPECT_EQ(Fresh(ids_, 64), whole);
  EXPECT_EQ(Fresh(ids_, 1), whole);
}

TEST_P(LongContext, ContinuesFromAnyPositionWithTheBitsOfAFreshSequence) {
  Sequence first(pool_.get());
  LastLogits(model_.get(), &first, ids_, 32);
  const std::vector<TokenId> more = RandomIds(9, model_->config().vocab_size, 5);
  for (const size_t length : {ids_.size(), ids_.size() - 1, ids_.size() - 33, size_t{65}}) {
    SCOPED_TRACE(length);
    std::vector<TokenId> all(ids_.begin(), ids_.begin() + static_cast<ptrdiff_t>(length));
    all.insert(all.end(), more.begin(), more.end());
    const std::vector<float> fresh = Fresh(all, 50);
    Sequence fork = first.Fork(length);
    EXPECT_EQ(LastLogits(model_.get(), &fork, more, 4), fresh);
  }
  first.Truncate(100);
  std::vector<TokenId> all(ids_.begin(), ids_.begin() + 100);
  all.insert(all.end(), more.begin(), more.end());
  EXPECT_EQ(LastLogits(model_.get(), &first, more, 1), Fresh(all, 50));
}

// What no layer's window reaches, through all layers, changes nothing; what one reaches does.
TEST_P(LongContext, NothingBehindTheWindowsIsSeen) {
  const LongCase& subject = GetParam();
  if (subject.window == 0) return;
  for (const LayerConfig& layer : model_->config().layers) {
    ASSERT_EQ(layer.sliding_window, subject.window);
  }
  const std::vector<float> seen = Fresh(ids_, 64);
  // Each layer sees window - 1 positions further back.
  const size_t reach = model_->config().num_layers * (subject.window - 1);
  const size_t last = ids_.size() - 1;
  std::vector<TokenId> other = ids_;
  for (size_t i = 0; i < last - reach; ++i) other[i] = (other[i] + 1) % 100;
  EXPECT_EQ(Fresh(other, 64), seen);
  other = ids_;
  other[last - reach] = (other[last - reach] + 1) % 100;
  EXPECT_NE(Fresh(other, 64), seen);
}

INSTANTIATE_TEST_SUITE_P(
    Families, LongContext,
    testing::Values(LongCase{"mistral", 300, 16, KvType::kF16},     // windows
                    LongCase{"mistral", 300, 16, KvType::kQ8},      //
                    LongCase{"gemma3", 300, 0, KvType::kF16},       // windows and whole layers
                    LongCase{"llama", 500, 0, KvType::kF16},        // llama3, from 64 positions
                    LongCase{"llama", 500, 0, KvType::kQ8},         //
                    LongCase{"deepseek_v2", 500, 0, KvType::kF16},  // yarn, from 64
                    LongCase{"deepseek_v2", 500, 0, KvType::kQ8},   //
                    LongCase{"qwen3", 400, 0, KvType::kF16}),
    [](const auto& test) {
      return std::string(test.param.family) + "_" + KvTypeName(test.param.type);
    });

// 32,768 positions of one small layer.
TEST(LongPrefill, TakesWhatTheCacheTakesAndNoMore) {
  constexpr size_t kPositions = 32768;
  TinyModel tiny;
  tiny.heads = 1;
  nlohmann::ordered_json config = tiny.Config();
  config["max_position_embeddings"] = kPositions;
  const auto checkpoint =
      std::make_shared<MemoryCheckpoint>(formats::CheckpointKind::kHuggingFace, config);
  const std::string weights = tiny.Weights();
  checkpoint->AddSafetensors({weights.begin(), weights.end()});
  ThreadPool threads(2);
  const auto model = Model::Load(checkpoint, LoadOptions{}, &threads);
  const std::vector<TokenId> ids = RandomIds(kPositions, 64, 1);
  const auto peak = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
  };
  std::vector<float> expected;
  for (const KvType type : {KvType::kQ8, KvType::kF16}) {
    KvPool pool(model->config(), type, BlocksFor(kPositions));
    Sequence sequence(&pool);
    const uint64_t before = peak();
    const std::vector<float> logits = LastLogits(model.get(), &sequence, ids, 256);
    const uint64_t cache = BlocksFor(kPositions) * KvPool::BytesPerBlock(model->config(), type);
    EXPECT_LT(peak() - before, cache + (uint64_t{4} << 20));
    EXPECT_EQ(sequence.length(), kPositions);
    // The end once more, in chunks of another size: the same bits.
    sequence.Truncate(kPositions - 700);
    const std::span<const TokenId> end = std::span(ids).last(700);
    EXPECT_EQ(LastLogits(model.get(), &sequence, end, 123), logits);
  }
}

}  // namespace
}  // namespace moewe::model
