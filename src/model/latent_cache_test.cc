// The compressed KV cache of latent attention under sharing: what a fork or a shortened sequence
// computes has the bits of one that never was anything else.
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "formats/checkpoint.h"
#include "hf_golden.h"
#include "model/kv_cache.h"
#include "model/model.h"

namespace moewe::model {
namespace {

using Tokens = std::vector<TokenId>;

class LatentCache : public testing::TestWithParam<std::tuple<std::string, KvType>> {
 protected:
  LatentCache() {
    const golden::HfGolden golden(std::get<0>(GetParam()));
    LoadOptions options;
    options.activations = kernels::Activations::kF32;
    model_ = Model::Load(formats::OpenCheckpoint(golden.folder.string()), options, &threads_);
    ids_ = golden.Ids("p70");
    other_ = Tokens(ids_.rbegin(), ids_.rend());
    pool_ = std::make_unique<KvPool>(model_->config(), std::get<1>(GetParam()), 64);
  }

  // All logits of `ids` behind `sequence`, `chunk` at a time.
  std::vector<float> Run(Sequence& sequence, std::span<const TokenId> ids, size_t chunk) {
    std::vector<float> all;
    for (size_t at = 0; at < ids.size(); at += chunk) {
      const SequenceChunk step{&sequence, ids.subspan(at, std::min(chunk, ids.size() - at)),
                               SequenceChunk::Logits::kAll};
      std::vector<float> logits;
      model_->Forward({&step, 1}, &logits);
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
  }

  // What a new sequence computes for `ids` behind the first `length` of the prompt.
  std::vector<float> Fresh(size_t length, std::span<const TokenId> ids) {
    Tokens whole(ids_.begin(), ids_.begin() + static_cast<ptrdiff_t>(length));
    whole.insert(whole.end(), ids.begin(), ids.end());
    Sequence sequence(pool_.get());
    std::vector<float> logits = Run(sequence, whole, whole.size());
    logits.erase(logits.begin(),
                 logits.begin() + static_cast<ptrdiff_t>(length * model_->config().vocab_size));
    return logits;
  }

  ThreadPool threads_{2};
  std::unique_ptr<Model> model_;
  Tokens ids_, other_;
  std::unique_ptr<KvPool> pool_;
};

// In the middle of a block, at its ends, at the very beginning and the very end.
constexpr size_t kLengths[] = {0, 1, kBlockTokens - 1, kBlockTokens, 37, 2 * kBlockTokens, 69, 70};

TEST_P(LatentCache, AForkContinuesAsIfItWereAlone) {
  ASSERT_EQ(model_->config().layers[0].mixer, MixerKind::kMla);
  ASSERT_EQ(ids_.size(), 70u);
  Sequence first(pool_.get());
  Run(first, ids_, 70);
  const std::span<const TokenId> more(other_.data(), 40);
  for (const size_t length : kLengths) {
    SCOPED_TRACE(length);
    Sequence fork = first.Fork(length);
    ASSERT_EQ(fork.length(), length);
    EXPECT_EQ(Run(fork, more, 9), Fresh(length, more));
  }
  // What the forks wrote is theirs alone.
  EXPECT_EQ(Run(first, more, 1), Fresh(70, more));
}

TEST_P(LatentCache, ATruncatedSequenceContinuesAsIfItHadNeverBeenLonger) {
  const std::span<const TokenId> more(other_.data(), 40);
  for (const size_t length : kLengths) {
    SCOPED_TRACE(length);
    Sequence sequence(pool_.get());
    Run(sequence, ids_, 16);
    sequence.Truncate(length);
    ASSERT_EQ(sequence.length(), length);
    EXPECT_EQ(Run(sequence, more, 7), Fresh(length, more));
  }
}

// Both at once: a fork is shortened while the other goes on, and the other way round.
TEST_P(LatentCache, ForksAreShortenedWithoutTheOthersNotice) {
  const std::span<const TokenId> more(other_.data(), 20);
  Sequence first(pool_.get());
  Run(first, ids_, 70);
  Sequence fork = first.Fork(66);
  fork.Truncate(41);
  EXPECT_EQ(Run(fork, more, 5), Fresh(41, more));
  first.Truncate(50);
  EXPECT_EQ(Run(first, more, 20), Fresh(50, more));
  Sequence second = fork.Fork(41);
  EXPECT_EQ(Run(second, std::span(other_).subspan(30), 40),
            Fresh(41, std::span(other_).subspan(30)));
}

INSTANTIATE_TEST_SUITE_P(All, LatentCache,
                         testing::Combine(testing::Values("deepseek_v2", "deepseek_v2_lite",
                                                          "deepseek_v3"),
                                          testing::Values(KvType::kF16, KvType::kF32, KvType::kQ8)),
                         [](const auto& one) {
                           return std::get<0>(one.param) + "_" + KvTypeName(std::get<1>(one.param));
                         });

}  // namespace
}  // namespace moewe::model
