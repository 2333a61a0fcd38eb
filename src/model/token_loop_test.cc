// Decoding a token asks for no memory, once everything has been used: any model, both ways through
// a product, resident or streamed.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "counted_allocations.h"
#include "formats/checkpoint.h"
#include "golden.h"
#include "model/kv_cache.h"
#include "model/model.h"
#include "model/outline.h"
#include "paths.h"

namespace moewe::model {
namespace {

struct Case {
  std::string name;
  std::string path;
  kernels::Activations activations;
  bool streamed = false;
};

class TokenLoop : public testing::TestWithParam<Case> {};

TEST_P(TokenLoop, AllocatesNothing) {
  const Case& subject = GetParam();
  ThreadPool threads(2);
  const std::shared_ptr<const formats::Checkpoint> checkpoint =
      formats::OpenCheckpoint(subject.path);
  LoadOptions options;
  options.activations = subject.activations;
  options.task = "none";
  options.draft_head = !subject.streamed;
  if (subject.streamed) {
    const ModelOutline outline(checkpoint, options, &threads);
    // Every expert has a slot: what is left is the way of a resident one through the store.
    options.stream.emplace().arena_bytes = outline.stored().ArenaBytes(outline.stored().count);
  }
  const std::unique_ptr<Model> model = Model::Load(checkpoint, options, &threads);
  KvPool pool(model->config(), KvType::kF16, 8);
  Sequence sequence(&pool);
  std::vector<float> logits;
  const uint32_t vocab = model->config().vocab_size;
  const auto token = [&](uint32_t i) {
    const TokenId id = static_cast<TokenId>(7 * i % vocab);
    const SequenceChunk chunk{&sequence, {&id, 1}, SequenceChunk::Logits::kLast};
    logits.clear();
    model->Forward({&chunk, 1}, &logits);
    if (!model->has_draft_head()) return;
    TokenId draft = 0;
    sequence.Reserve(1);
    ASSERT_EQ(model->Draft(&sequence, id, {&draft, 1}), 1u);
  };
  // Up to the last block of keys and values that will be needed, with every expert at hand.
  uint32_t done = 0;
  while (done < 4 * kBlockTokens + 2) token(done++);
  const uint64_t before = counted_allocations;
  EXPECT_GT(before, 0u);
  while (done < 5 * kBlockTokens - 1) token(done++);
  EXPECT_EQ(counted_allocations - before, 0u);
}

const std::string kHf = golden::Path("hf/").string();
constexpr auto kInt8 = kernels::Activations::kInt8;
constexpr auto kF32 = kernels::Activations::kF32;

INSTANTIATE_TEST_SUITE_P(
    Models, TokenLoop,
    testing::Values(
        Case{"Demo", paths::DemoModel(), kInt8}, Case{"DemoF32", paths::DemoModel(), kF32},
        Case{"DemoStreamed", paths::DemoModel(), kInt8, true}, Case{"Llama", kHf + "llama", kF32},
        Case{"Gemma2", kHf + "gemma2", kF32}, Case{"Qwen2Moe", kHf + "qwen2_moe", kF32},
        Case{"DeepSeekV3", kHf + "deepseek_v3", kF32}, Case{"Laguna", kHf + "laguna", kF32},
        Case{"GptOss", kHf + "gpt_oss", kInt8}, Case{"Lfm2Moe", kHf + "lfm2_moe", kInt8},
        Case{"Qwen3Next", kHf + "qwen3_next", kF32}, Case{"KimiLinear", kHf + "kimi_linear", kInt8},
        Case{"DeepSeekV2Int8", kHf + "deepseek_v2", kInt8},
        Case{"Q4tp", golden::Path("cmf/files/moe_qwen3_q4tp.cmf").string(), kInt8},
        Case{"Vbit", golden::Path("cmf/files/dense_qwen3_vbit.cmf").string(), kInt8},
        Case{"VbitF32", golden::Path("cmf/files/dense_qwen3_vbit.cmf").string(), kF32}),
    [](const testing::TestParamInfo<Case>& one) { return one.param.name; });

}  // namespace
}  // namespace moewe::model
