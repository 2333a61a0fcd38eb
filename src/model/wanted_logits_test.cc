// Behind the last mixer only rows whose logits are asked for are computed: the same bits, fewer
// experts.
#include <gtest/gtest.h>

#include <array>
#include <cctype>
#include <memory>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "golden.h"
#include "model/kv_cache.h"
#include "model/model.h"
#include "model/outline.h"

namespace moewe::model {
namespace {

using Logits = SequenceChunk::Logits;

// Notes how many rows a layer has.
class LayerRows : public ForwardObserver {
 public:
  void OnFfn(int /*layer*/, const float* /*data*/, size_t rows) override { rows_.push_back(rows); }
  const std::vector<size_t>& rows() const { return rows_; }  // a layer and step

 private:
  std::vector<size_t> rows_;
};

// Three sequences in one step, of which logits are asked for as said, and then a token of each.
std::vector<float> LogitsOf(Model* model, const std::array<Logits, 3>& wanted,
                            ForwardObserver* observer) {
  KvPool pool(model->config(), KvType::kF16, 16);
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::array<std::vector<TokenId>, 3> tokens = {{{3, 1, 4, 1, 5}, {9, 2, 6, 5}, {8, 9, 7}}};
  std::vector<SequenceChunk> chunks(3);
  for (size_t i = 0; i < 3; ++i) {
    sequences.push_back(std::make_unique<Sequence>(&pool));
    chunks[i].sequence = sequences[i].get();
    chunks[i].tokens = tokens[i];
    chunks[i].logits = wanted[i];
  }
  std::vector<float> logits;
  model->Forward(chunks, &logits, observer);
  for (SequenceChunk& chunk : chunks) {
    chunk.tokens = chunk.tokens.first(1);
    chunk.logits = Logits::kLast;
  }
  model->Forward(chunks, &logits, observer);
  return logits;
}

class WantedLogits : public testing::TestWithParam<std::string> {};

TEST_P(WantedLogits, OfSomeRowsHaveTheBitsOfThoseOfAll) {
  ThreadPool threads(2);
  const std::shared_ptr<const formats::Checkpoint> file =
      formats::OpenCheckpoint(golden::Path(GetParam()).string());
  const auto model = Model::Load(file, {}, &threads);
  const size_t vocab = model->config().vocab_size;
  const std::vector<float> all =
      LogitsOf(model.get(), {Logits::kAll, Logits::kAll, Logits::kAll}, nullptr);
  ASSERT_EQ(all.size(), (12 + 3) * vocab);
  const std::vector<float> some =
      LogitsOf(model.get(), {Logits::kAll, Logits::kLast, Logits::kNone}, nullptr);
  std::vector<float> expected;
  for (const size_t row : {0, 1, 2, 3, 4, 8, 12, 13, 14}) {
    const auto begin = all.begin() + static_cast<ptrdiff_t>(row * vocab);
    expected.insert(expected.end(), begin, begin + static_cast<ptrdiff_t>(vocab));
  }
  EXPECT_EQ(some, expected);

  // Who observes sees every row.
  LayerRows observer;
  EXPECT_EQ(LogitsOf(model.get(), {Logits::kAll, Logits::kLast, Logits::kNone}, &observer), some);
  ASSERT_EQ(observer.rows().size(), 2 * model->config().num_layers);
  EXPECT_EQ(observer.rows()[model->config().num_layers - 1], 12u);
}

INSTANTIATE_TEST_SUITE_P(Models, WantedLogits,
                         testing::Values("hf/qwen3", "hf/qwen3_moe", "cmf/files/moe_qwen2_q8.cmf"),
                         [](const auto& test) {
                           std::string name = test.param;
                           for (char& c : name) {
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           }
                           return name;
                         });

// By what a streamed model asks of its store: a use is an expert of a step.
TEST(WantedLogits, WithoutThemTheLastLayerAsksForNoExpert) {
  ThreadPool threads(2);
  const std::shared_ptr<const formats::Checkpoint> file =
      formats::OpenCheckpoint(golden::Path("cmf/files/moe_qwen3_q4tp.cmf").string());
  const ModelOutline outline(file, {}, &threads);
  const std::vector<TokenId> token = {3};
  const auto uses = [&](Logits wanted) {
    LoadOptions options;
    options.stream.emplace();
    options.stream->arena_bytes = outline.stored().ArenaBytes(outline.stored().count);
    const auto model = Model::Load(file, options, &threads);
    KvPool pool(model->config(), KvType::kF16, 16);
    Sequence sequence(&pool);
    SequenceChunk chunk;
    chunk.sequence = &sequence;
    chunk.tokens = token;
    chunk.logits = wanted;
    std::vector<float> logits;
    model->Forward({&chunk, 1}, &logits);
    EXPECT_EQ(sequence.length(), 1u);
    const experts::StoreStats stats = model->stream_stats()->store;
    return stats.resident + stats.prefetched + stats.missed;
  };
  const uint64_t layers = outline.config().num_layers;
  const uint64_t top_k = outline.config().moe.top_k;
  EXPECT_EQ(uses(Logits::kLast), layers * top_k);
  EXPECT_EQ(uses(Logits::kNone), (layers - 1) * top_k);
}

}  // namespace
}  // namespace moewe::model
