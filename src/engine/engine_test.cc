// Callers on several threads over one engine.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine/test_model.h"
#include "golden.h"
#include "paths.h"

namespace moewe::engine {
namespace {

const std::string kModel = golden::Path("hf/qwen3_moe").string();
constexpr SchedulerOptions kOptions{.context = 512, .kv_blocks = 64, .chunk = 16};

Request Drawn(TokenId first, uint64_t seed) {
  Request request;
  for (TokenId i = 0; i < 30; ++i) request.prompt.push_back((first + 7 * i) % 200);
  request.sampling.temperature = 1.0f;
  request.sampling.seed = seed;
  request.max_tokens = 20;
  return request;
}

TEST(Engine, CallersOnManyThreadsGetWhatTheyWouldGetAlone) {
  TestModel test(kModel);
  std::vector<std::vector<TokenId>> expected;
  for (TokenId i = 0; i < 6; ++i) {
    Engine engine(test.model.get(), nullptr, kOptions);
    expected.push_back(engine.Generate(Drawn(i, static_cast<uint64_t>(i))).ids);
  }
  Engine engine(test.model.get(), nullptr, kOptions);
  std::vector<Result> results(expected.size());
  std::vector<std::thread> callers;
  for (size_t i = 0; i < expected.size(); ++i) {
    callers.emplace_back(
        [&, i] { results[i] = engine.Generate(Drawn(static_cast<TokenId>(i), i)); });
  }
  for (std::thread& caller : callers) caller.join();
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(results[i].ids, expected[i]);
}

TEST(Engine, CancellingFromAnotherThread) {
  TestModel test(kModel);
  Engine engine(test.model.get(), nullptr, kOptions);
  std::atomic<bool> cancel = false;
  Request request = Drawn(1, 1);
  request.max_tokens = 0;
  request.cancel = &cancel;
  std::thread other([&] {
    while (engine.stats().computed_tokens < 35) std::this_thread::yield();
    cancel = true;
  });
  const Result result = engine.Generate(std::move(request));
  other.join();
  EXPECT_EQ(result.finish_reason, FinishReason::kCancelled);
  EXPECT_GT(result.ids.size(), 0u);
  EXPECT_LT(result.ids.size(), 480u);
}

TEST(Engine, AnExceptionOfTheCallersFunctionComesBackToIt) {
  TestModel test(paths::DemoModel());
  Engine engine(test.model.get(), test.tokenizer.get(), kOptions);
  Request request = Drawn(1, 1);
  request.max_tokens = 0;
  const auto here = std::this_thread::get_id();
  request.on_text = [&](std::string_view) {
    EXPECT_EQ(std::this_thread::get_id(), here);
    throw std::runtime_error("enough");
  };
  EXPECT_THROW(engine.Generate(std::move(request)), std::runtime_error);
  EXPECT_EQ(engine.Generate(Drawn(1, 1)).ids.size(), 20u);
}

TEST(Engine, RefusedRequestsThrowInTheCaller) {
  TestModel test(kModel);
  Engine engine(test.model.get(), nullptr, kOptions);
  EXPECT_THROW(engine.Generate(Request()), Error);
}

}  // namespace
}  // namespace moewe::engine
