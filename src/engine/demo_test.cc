// The demonstration model against its golden values: greedy text of three prompts, in f32.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "engine/generate.h"
#include "formats/checkpoint.h"
#include "golden.h"
#include "paths.h"

namespace moewe::engine {
namespace {

const std::string kDemo = paths::DemoModel();

struct Demo {
  Demo() : threads(2), checkpoint(formats::OpenCheckpoint(kDemo)) {
    model::LoadOptions options;
    options.activations = kernels::Activations::kF32;
    model = model::Model::Load(checkpoint, options, &threads);
    tokenizer = text::Tokenizer::FromJson(checkpoint->tokenizer_json(), kDemo);
  }
  GenerateResult Run(const GenerateRequest& request, std::string* streamed = nullptr) {
    model::KvPool pool(model->config(), model::KvType::kF32, 32);
    model::Sequence sequence(&pool);
    return Generate(model.get(), tokenizer.get(), &sequence, request, [&](std::string_view piece) {
      if (streamed != nullptr) *streamed += piece;
    });
  }

  ThreadPool threads;
  std::shared_ptr<const formats::Checkpoint> checkpoint;
  std::unique_ptr<model::Model> model;
  std::unique_ptr<text::Tokenizer> tokenizer;
};

GenerateRequest Greedy(std::vector<TokenId> prompt, uint32_t tokens) {
  GenerateRequest request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0.0f;
  request.max_tokens = tokens;
  request.context = 1024;
  return request;
}

TEST(Demo, GreedyTextOfTheGoldenPrompts) {
  Demo demo;
  const nlohmann::json golden = golden::ReadJson(kDemo + "/golden.json");
  for (const nlohmann::json& prompt : golden["prompts"]) {
    EXPECT_EQ(demo.tokenizer->Encode(prompt["text"].get<std::string>()),
              prompt["ids"].get<std::vector<TokenId>>());
    const GenerateResult result = demo.Run(Greedy(prompt["ids"].get<std::vector<TokenId>>(), 32));
    EXPECT_EQ(result.ids, prompt["greedy_ids"].get<std::vector<TokenId>>());
    EXPECT_EQ(result.finish_reason, FinishReason::kLength);
  }
}

TEST(Demo, StopStringsEndTheAnswerAndAreNotShown) {
  Demo demo;
  GenerateRequest request =
      Greedy(demo.tokenizer->Encode("Once upon a time, in a deep forest, there lived"), 32);
  request.stops = {"was Sara. Sa", "otter"};
  std::string streamed;
  const GenerateResult result = demo.Run(request, &streamed);
  EXPECT_EQ(result.text, " a young girl whose name ");
  EXPECT_EQ(streamed, result.text);
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
}

TEST(Demo, APromptThatFillsTheContextIsRefused) {
  Demo demo;
  GenerateRequest request = Greedy({1, 2, 3}, 4);
  request.context = 3;
  EXPECT_THROW(demo.Run(request), Error);
  request.context = 5;
  EXPECT_EQ(demo.Run(request).ids.size(), 2u);
}

}  // namespace
}  // namespace moewe::engine
