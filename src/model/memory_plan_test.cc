// Where memory goes: parts add up, contexts shrink to fit, what does not fit is refused with its
// parts.
#include "model/memory_plan.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "formats/checkpoint.h"
#include "golden.h"
#include "moewe/error.h"
#include "paths.h"

namespace moewe::model {
namespace {

struct Subject {
  explicit Subject(const std::string& folder, bool draft_head = false) : threads(1) {
    LoadOptions options;
    options.draft_head = draft_head;
    model = std::make_unique<ModelOutline>(formats::OpenCheckpoint(folder), options, &threads);
  }
  ThreadPool threads;
  std::unique_ptr<ModelOutline> model;
};

const std::string kDemo = paths::DemoModel();
constexpr uint64_t kPlenty = uint64_t{1} << 40;

TEST(MemoryPlan, PartsOfTheDemonstrationModel) {
  const Subject demo(kDemo);
  const MemoryPlan plan = PlanMemory(*demo.model, {.budget = kPlenty});
  // 4 layers of 32 experts, three bf16 matrices of 192 x 64 each.
  EXPECT_EQ(plan.experts, 4u * 32 * 3 * 192 * 64 * 2);
  EXPECT_EQ(plan.trunk + plan.experts, demo.model->weight_bytes_total());
  EXPECT_EQ(plan.context, 1024u);
  // Keys and values of 2 heads of 32 channels in 4 layers, f16.
  EXPECT_EQ(KvBytesPerPosition(demo.model->config(), KvType::kF16), 2u * 2 * 32 * 4 * 2);
  EXPECT_EQ(plan.kv, 1024u * 2 * 2 * 32 * 4 * 2);
  EXPECT_GE(plan.activations, 4u * 4096);
  EXPECT_TRUE(plan.fits());
  EXPECT_FALSE(plan.shrunk);
  EXPECT_NO_THROW(RequireFit(plan, "demo"));
}

TEST(MemoryPlan, EveryOptionCostsWhatItSays) {
  const Subject demo(kDemo);
  const MemoryRequest base{.budget = kPlenty};
  const MemoryPlan plan = PlanMemory(*demo.model, base);
  MemoryRequest request = base;
  request.kv_type = KvType::kF32;
  EXPECT_EQ(PlanMemory(*demo.model, request).kv, 2 * plan.kv);
  request = base;
  request.sequences = 3;
  EXPECT_EQ(PlanMemory(*demo.model, request).kv, 3 * plan.kv);
  // Two may decode beside the third one's chunk.
  EXPECT_EQ(PlanMemory(*demo.model, request).activations,
            ActivationBytes(*demo.model, plan.chunk + 2, 1));
  request = base;
  request.context = 33;
  EXPECT_EQ(PlanMemory(*demo.model, request).kv, 64u * plan.kv / 1024);
  request = base;
  request.logit_rows = 11;
  EXPECT_EQ(PlanMemory(*demo.model, request).activations, plan.activations + 10u * 4 * 4096);
  // A draft needs a row of logits; the rows of a chunk are there.
  request = base;
  request.draft_rows = 8;
  EXPECT_EQ(PlanMemory(*demo.model, request).activations, plan.activations + 8u * 4 * 4096);
  request.chunk = 1;
  EXPECT_EQ(PlanMemory(*demo.model, request).activations, ActivationBytes(*demo.model, 9, 9));
  // Where every token of a step gives logits, a step takes no more than a buffer holds.
  ModelConfig config = demo.model->config();
  EXPECT_EQ(LogitRowsOfStep(config, 256), 256u);
  EXPECT_EQ(LogitRowsOfStep(config, 1), 1u);
  config.vocab_size = 151936;
  EXPECT_LE(LogitRowsOfStep(config, 256) * 4 * config.vocab_size, uint64_t{64} << 20);
  EXPECT_GE(LogitRowsOfStep(config, 256), 64u);
  config.vocab_size = 1u << 31;
  EXPECT_EQ(LogitRowsOfStep(config, 256), 1u);
  request = base;
  request.chunk = 1;
  EXPECT_LT(PlanMemory(*demo.model, request).activations, plan.activations / 8);
  request = base;
  request.beside = 12345;
  EXPECT_EQ(PlanMemory(*demo.model, request).total(), plan.total() + 12345);
  // Of a model that is streamed it comes from the experts' room.
  MemoryRequest tight{.budget = kPlenty, .context = 64};
  tight.budget = PlanMemory(*demo.model, tight).total() - 300000;
  const uint64_t slots = PlanMemory(*demo.model, tight).slots;
  tight.beside = 200000;
  EXPECT_LT(PlanMemory(*demo.model, tight).slots, slots);
  EXPECT_TRUE(PlanMemory(*demo.model, tight).fits());
}

TEST(MemoryPlan, DraftsTakeWhatIsLeftUnlessTheyAreAskedFor) {
  const Subject demo(kDemo);
  MemoryRequest request{.budget = kPlenty, .context = 256};
  const uint64_t without = PlanMemory(*demo.model, request).total();
  request.draft_rows = 8;
  const uint64_t with = PlanMemory(*demo.model, request).total();
  EXPECT_EQ(PlanMemory(*demo.model, request).draft_rows, 8u);
  request.budget = with - 1;
  const MemoryPlan tight = PlanMemory(*demo.model, request);
  EXPECT_EQ(tight.draft_rows, 0u);
  EXPECT_EQ(tight.total(), without);
  EXPECT_FALSE(tight.streamed);
  request.needs_drafts = true;
  request.budget = with;
  EXPECT_EQ(PlanMemory(*demo.model, request).draft_rows, 8u);
  // Of a streamed model there are none, whoever asks.
  request.budget = with - 1;
  EXPECT_TRUE(PlanMemory(*demo.model, request).streamed);
  EXPECT_EQ(PlanMemory(*demo.model, request).draft_rows, 0u);
  request.needs_drafts = false;
  request.least = true;
  EXPECT_EQ(PlanMemory(*demo.model, request).draft_rows, 0u);
}

TEST(MemoryPlan, DraftsOfRecurrentLayersTakeAStateMore) {
  const Subject hybrid(golden::Path("hf/qwen3_next").string());
  MemoryRequest request{.budget = kPlenty, .context = 256, .sequences = 3};
  const uint64_t state = KvPool::BytesPerState(hybrid.model->config());
  EXPECT_EQ(PlanMemory(*hybrid.model, request).states, 3 * kStatesPerSequence * state);
  request.draft_rows = 4;
  EXPECT_EQ(PlanMemory(*hybrid.model, request).states, (3 * kStatesPerSequence + 1) * state);
}

TEST(MemoryPlan, APredictionHeadIsALayerMore) {
  for (const char* family : {"qwen3_next", "deepseek_v3"}) {
    const std::string folder = golden::Path(std::string("hf/") + family).string();
    const Subject without(folder), with(folder, /*draft_head=*/true);
    const MemoryRequest request{.budget = kPlenty, .context = 256, .draft_rows = 4};
    const MemoryPlan plain = PlanMemory(*without.model, request);
    const MemoryPlan headed = PlanMemory(*with.model, request);
    const ModelConfig& config = with.model->config();
    ASSERT_TRUE(config.mtp_runs);
    const auto rows = config.CachedBy(config.LayerOfVisit(config.num_visits()));
    const uint64_t of_head = uint64_t{rows.heads} * (rows.key_width + rows.value_width) * 2;
    EXPECT_NEAR(static_cast<double>(headed.kv - plain.kv), 256.0 * static_cast<double>(of_head),
                256.0 / kBlockTokens * 64);  // blocks are whole cache lines
    uint64_t bytes = 0;
    for (const formats::TensorView& tensor : with.model->weights().tensors) {
      if (tensor.name.starts_with("model.mtp.") && tensor.shape.size() > 1) {
        bytes += tensor.bytes.size();
      }
    }
    const uint64_t more = headed.trunk + headed.experts - plain.trunk - plain.experts;
    EXPECT_GE(more, bytes);
    EXPECT_LE(more, bytes + 10 * 4 * uint64_t{config.hidden_size});
    EXPECT_GT(headed.activations, plain.activations);
  }
}

TEST(MemoryPlan, AContextThatNobodyAskedForShrinksToFit) {
  const Subject demo(kDemo);
  const MemoryPlan full = PlanMemory(*demo.model, {.budget = kPlenty});
  EXPECT_TRUE(PlanMemory(*demo.model, {.budget = full.total()}).fits());
  EXPECT_FALSE(PlanMemory(*demo.model, {.budget = full.total()}).shrunk);

  const MemoryPlan half = PlanMemory(*demo.model, {.budget = full.total() - full.kv / 2});
  EXPECT_TRUE(half.fits());
  EXPECT_TRUE(half.shrunk);
  EXPECT_EQ(half.context, 512u);
  // One byte less costs a block.
  EXPECT_EQ(PlanMemory(*demo.model, {.budget = half.total() - 1}).context, 512u - kBlockTokens);

  // Asked for, it makes experts give way.
  MemoryRequest asked{.budget = half.total()};
  asked.context = 1024;
  const MemoryPlan streamed = PlanMemory(*demo.model, asked);
  EXPECT_TRUE(streamed.fits());
  EXPECT_TRUE(streamed.streamed);
  EXPECT_EQ(streamed.context, 1024u);
}

TEST(MemoryPlan, ExpertsAreStreamedWhenTheyDoNotFit) {
  const Subject demo(kDemo);
  const MemoryPlan full = PlanMemory(*demo.model, {.budget = kPlenty});
  EXPECT_FALSE(full.streamed);
  const StoredExperts& stored = demo.model->stored();
  EXPECT_EQ(stored.count, 4u * 32);
  EXPECT_EQ(stored.held_bytes, 0u);
  EXPECT_EQ(stored.least_slots, demo.model->config().moe.top_k);
  // Three bf16 matrices of 192 x 64, anywhere in pages.
  EXPECT_GE(stored.slot_bytes, 3u * 192 * 64 * 2);
  EXPECT_LE(stored.slot_bytes, 3u * (192 * 64 * 2 + 2 * 4096));

  MemoryRequest request;
  request.least = true;
  const uint64_t least = PlanMemory(*demo.model, request).total();
  uint64_t slots = 0;
  uint32_t context = 0;
  uint32_t chunk = 0;
  for (uint64_t budget = least; budget < full.total(); budget += 200000) {
    const MemoryPlan plan = PlanMemory(*demo.model, {.budget = budget});
    EXPECT_TRUE(plan.fits()) << budget;
    if (!plan.streamed) continue;
    EXPECT_GE(plan.slots, stored.least_slots) << budget;
    EXPECT_LE(plan.slots, stored.count) << budget;
    EXPECT_EQ(plan.arena, plan.slots * stored.slot_bytes) << budget;
    EXPECT_GE(plan.context, kLeastContext) << budget;
    // The context takes no more than half of what both have, unless it has to.
    if (plan.context > kLeastContext && plan.slots < stored.count) {
      EXPECT_GE(plan.arena + stored.slot_bytes, plan.kv) << budget;
    }
    // Nothing of it falls when the budget rises, unless the chunk doubles.
    if (plan.chunk == chunk) {
      EXPECT_GE(plan.slots, slots) << budget;
      EXPECT_GE(plan.context, context) << budget;
    }
    EXPECT_GE(plan.chunk, chunk) << budget;
    slots = plan.slots;
    context = plan.context;
    chunk = plan.chunk;
  }
  EXPECT_GT(slots, stored.least_slots);
}

TEST(MemoryPlan, TheLeastThatCanRun) {
  const Subject demo(kDemo);
  MemoryRequest request;
  request.least = true;
  const MemoryPlan least = PlanMemory(*demo.model, request);
  EXPECT_TRUE(least.fits());
  EXPECT_EQ(least.context, kLeastContext);
  EXPECT_EQ(least.budget, least.total());
  EXPECT_TRUE(least.streamed);
  EXPECT_EQ(least.slots, least.least_slots);
  EXPECT_TRUE(PlanMemory(*demo.model, {.budget = least.total()}).fits());
  EXPECT_FALSE(PlanMemory(*demo.model, {.budget = least.total() - 1}).fits());
}

TEST(MemoryPlan, WhatDoesNotFitIsNamedByPart) {
  const Subject demo(kDemo);
  const MemoryPlan plan = PlanMemory(*demo.model, {.budget = 1000});
  EXPECT_EQ(plan.context, kLeastContext);
  try {
    RequireFit(plan, "demo.cmf");
    FAIL() << "fits 1000 bytes";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfBudget);
    EXPECT_EQ(error.where().file, "demo.cmf");
    for (const char* part :
         {"trunk", "experts", "KV cache", "activations", "1.00 kB", "more than"}) {
      EXPECT_NE(error.message().find(part), std::string::npos) << part << ": " << error.message();
    }
  }
}

TEST(MemoryPlan, AContextBeyondTheModelsIsRefused) {
  const Subject demo(kDemo);
  MemoryRequest request{.budget = kPlenty};
  request.context = 1025;
  EXPECT_THROW(PlanMemory(*demo.model, request), Error);
}

TEST(MemoryPlan, ADenseModelHasNoExperts) {
  const Subject dense(golden::Path("hf/qwen2").string());
  const MemoryPlan plan = PlanMemory(*dense.model, {.budget = kPlenty});
  EXPECT_EQ(plan.experts, 0u);
  EXPECT_EQ(plan.trunk, dense.model->weight_bytes_total());
}

}  // namespace
}  // namespace moewe::model
