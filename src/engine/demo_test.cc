// The demonstration model against its golden values: greedy text of three prompts, in f32.
#include <gtest/gtest.h>

#include <string>

#include "engine/engine.h"
#include "engine/test_model.h"
#include "golden.h"
#include "paths.h"

namespace moewe::engine {
namespace {

const std::string kDemo = paths::DemoModel();

struct Demo : TestModel {
  Demo() : TestModel(kDemo, kernels::Activations::kF32, 2) {}
  Result Run(const Request& request, uint32_t context = 1024) {
    return Engine(
               model.get(), tokenizer.get(),
               {.context = context, .kv_blocks = 32, .kv_type = model::KvType::kF32, .chunk = 256})
        .Generate(request);
  }
};

Request GreedyRequest(std::vector<TokenId> prompt, uint32_t tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0.0f;
  request.max_tokens = tokens;
  return request;
}

TEST(Demo, GreedyTextOfTheGoldenPrompts) {
  Demo demo;
  const nlohmann::json golden = golden::ReadJson(kDemo + "/golden.json");
  for (const nlohmann::json& prompt : golden["prompts"]) {
    EXPECT_EQ(demo.tokenizer->Encode(prompt["text"].get<std::string>()),
              prompt["ids"].get<std::vector<TokenId>>());
    const Result result = demo.Run(GreedyRequest(prompt["ids"].get<std::vector<TokenId>>(), 32));
    EXPECT_EQ(result.ids, prompt["greedy_ids"].get<std::vector<TokenId>>());
    EXPECT_EQ(result.finish_reason, FinishReason::kLength);
  }
}

TEST(Demo, StopStringsEndTheAnswerAndAreNotShown) {
  Demo demo;
  Request request =
      GreedyRequest(demo.tokenizer->Encode("Once upon a time, in a deep forest, there lived"), 32);
  request.stops = {"was Sara. Sa", "otter"};
  std::string streamed;
  request.on_text = [&](std::string_view piece) { streamed += piece; };
  const Result result = demo.Run(request);
  EXPECT_EQ(result.text, " a young girl whose name ");
  EXPECT_EQ(streamed, result.text);
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
}

TEST(Demo, TheContextEndsAnAnswer) {
  Demo demo;
  EXPECT_THROW(demo.Run(GreedyRequest({1, 2, 3}, 4), 3), Error);
  const Result result = demo.Run(GreedyRequest({1, 2, 3}, 4), 5);
  EXPECT_EQ(result.ids.size(), 2u);
  EXPECT_EQ(result.finish_reason, FinishReason::kLength);
}

}  // namespace
}  // namespace moewe::engine
