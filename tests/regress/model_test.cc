// Public faults around running a model: widths that are no multiple of a block, logits that are not
// numbers, a window that is exactly full.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "golden.h"
#include "model/kv_cache.h"
#include "model/model.h"
#include "program.h"
#include "tiny_model.h"

namespace moewe {
namespace {

std::string PutModel(const ScratchFolder& scratch, const TinyModel& tiny) {
  scratch.Put("model/config.json", tiny.Config().dump());
  scratch.Put("model/model.safetensors", tiny.Weights());
  return scratch.At("model");
}

// Programs crashed, or wrote files that could not be read, where a matrix had columns that 32 does
// not divide.
TEST(PublicFaults, ColumnsThatNoBlockDivides) {
  TinyModel tiny;
  tiny.hidden = 40;
  tiny.intermediate = 52;
  tiny.heads = 2;
  tiny.head_dim = 18;
  const ScratchFolder scratch;
  const std::string model = PutModel(scratch, tiny);
  ASSERT_EQ(
      RunMoewe("logits " + model + " --ids 1,2,3 --activations f32 --out " + scratch.At("exact"))
          .code,
      0);
  const std::vector<float> exact = golden::ReadF32(scratch.At("exact"));
  ASSERT_EQ(exact.size(), tiny.vocab);
  for (const std::string quant :
       {"f32", "f16", "bf16", "q8", "q8_2f", "q4", "q4t", "q4tp", "vbit", "q1", "q1s", "q1t"}) {
    SCOPED_TRACE(quant);
    const std::string file = scratch.At(quant + ".cmf");
    ASSERT_EQ(RunMoewe("convert --quiet " + model + " " + file + " --quant " + quant).code, 0);
    EXPECT_EQ(RunMoewe("verify " + file).code, 0);
    for (const std::string activations : {"f32", "int8"}) {
      ASSERT_EQ(RunMoewe("logits " + file + " --ids 1,2,3 --activations " + activations +
                         " --out " + scratch.At("out"))
                    .code,
                0);
      const std::vector<float> logits = golden::ReadF32(scratch.At("out"));
      ASSERT_EQ(logits.size(), exact.size());
      double error = 0.0, norm = 0.0;
      for (size_t i = 0; i < exact.size(); ++i) {
        const double difference = static_cast<double>(logits[i]) - exact[i];
        error += difference * difference;
        norm += static_cast<double>(exact[i]) * exact[i];
      }
      // A dtype's own error, not that of values in wrong places.
      EXPECT_LT(error, 0.1 * norm) << activations;
    }
  }
}

// A sampler met NaN, an assertion ended the process. It is an error of this one request.
TEST(PublicFaults, LogitsThatAreNotNumbers) {
  TinyModel tiny;
  tiny.nan_head = true;
  const ScratchFolder scratch;
  const std::string model = PutModel(scratch, tiny);
  for (const std::string mode : {"--greedy", "--temp 1", "--temp 1 --top-k 5 --min-p 0.1"}) {
    const Outcome outcome = RunMoewe("run " + model + " --json --ids 1,2 -n 3 " + mode);
    EXPECT_EQ(outcome.code, 1) << mode;
    EXPECT_EQ(outcome.json()["error"]["code"], "Internal") << mode;
  }
}

// A cache of a sliding window went wrong at the position that filled it. The golden model has a
// window of 16; every length around its multiples, in one step and token by token.
TEST(PublicFaults, ASlidingWindowThatIsJustFull) {
  constexpr size_t kWindow = 16;
  ThreadPool threads(2);
  model::LoadOptions options;
  options.activations = kernels::Activations::kF32;
  const auto loaded = model::Model::Load(
      formats::OpenCheckpoint(golden::Path("hf/mistral").string()), options, &threads);
  ASSERT_EQ(loaded->config().layers[0].sliding_window, kWindow);
  std::vector<model::TokenId> ids;
  for (size_t i = 0; i < 3 * kWindow + 2; ++i) {
    ids.push_back(static_cast<model::TokenId>((i * 37 + 11) % loaded->config().vocab_size));
  }
  const auto logits_of = [&](std::span<const model::TokenId> tokens, size_t step) {
    model::KvPool pool(loaded->config(), model::KvType::kF32, 16);
    model::Sequence sequence(&pool);
    std::vector<float> logits;
    while (!tokens.empty()) {
      model::SequenceChunk chunk;
      chunk.sequence = &sequence;
      chunk.tokens = tokens.first(std::min(step, tokens.size()));
      tokens = tokens.subspan(chunk.tokens.size());
      chunk.logits = model::SequenceChunk::Logits::kLast;
      logits.clear();
      loaded->Forward({&chunk, 1}, &logits);
    }
    return logits;
  };
  const auto prefix = [&](size_t n) { return std::span(ids).first(n); };
  for (const size_t around : {kWindow, 2 * kWindow, 3 * kWindow}) {
    for (const size_t n : {around - 1, around, around + 1}) {
      const std::vector<float> whole = logits_of(prefix(n), n);
      EXPECT_EQ(logits_of(prefix(n), 1), whole) << n;
      EXPECT_EQ(logits_of(prefix(n), kWindow - 1), whole) << n;
    }
  }
  // And the window is one: in the first layer alone a token that is out of every window can't be
  // told any more; with three layers it is out of reach after 3 * (kWindow - 1) positions.
  std::vector<model::TokenId> other = ids;
  other[0] = (ids[0] + 1) % static_cast<model::TokenId>(loaded->config().vocab_size);
  const size_t reach = loaded->config().num_layers * (kWindow - 1) + 1;
  ASSERT_LT(reach, ids.size());
  EXPECT_NE(logits_of(std::span(other).first(reach), reach), logits_of(prefix(reach), reach));
  EXPECT_EQ(logits_of(std::span(other).first(reach + 1), reach + 1),
            logits_of(prefix(reach + 1), reach + 1));
}

}  // namespace
}  // namespace moewe
