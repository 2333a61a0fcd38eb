// An engine over a model whose experts come from a slow disk: many callers, statistics asked for
// meanwhile, reads ahead while nobody asks, faults of single requests.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "engine/test_model.h"
#include "fake_disk.h"
#include "golden.h"
#include "model/outline.h"

namespace moewe::engine {
namespace {

const std::string kModel = golden::Path("hf/qwen3_moe").string();
constexpr SchedulerOptions kOptions{.context = 512, .kv_blocks = 64, .chunk = 16};

Request Drawn(uint64_t seed) {
  Request request;
  const auto first = static_cast<TokenId>(seed);
  for (TokenId i = 0; i < 12; ++i) request.prompt.push_back((first + 7 * i) % 200);
  request.sampling.temperature = 1.0f;
  request.sampling.seed = seed;
  request.max_tokens = 8;
  return request;
}

class StreamedEngine : public testing::Test {
 protected:
  StreamedEngine()
      : checkpoint_(formats::OpenCheckpoint(kModel)),
        usage_((std::filesystem::temp_directory_path() /
                ("moewe_streamed_engine." + std::to_string(getpid())))
                   .string()) {
    for (const std::string& file : checkpoint_->files()) disk_->AddFile(file);
    std::filesystem::remove(usage_);
  }
  ~StreamedEngine() override { std::filesystem::remove(usage_); }

  // With places for so many of its experts.
  std::unique_ptr<model::Model> Load(uint64_t slots) {
    model::LoadOptions options;
    options.activations = kernels::Activations::kF32;
    const model::ModelOutline outline(checkpoint_, options, &threads_);
    stored_ = outline.stored();
    options.stream.emplace();
    options.stream->arena_bytes = stored_.ArenaBytes(slots);
    options.stream->frequencies = usage_;
    options.stream->open_reader = [this](std::span<const std::string>, std::span<uint8_t>) {
      return disk_->MakeReader({.seed = 3,
                                .depth = 3,
                                .least = std::chrono::microseconds(20),
                                .most = std::chrono::microseconds(200)});
    };
    return model::Model::Load(checkpoint_, options, &threads_);
  }

  std::vector<TokenId> Expected(uint64_t seed) {
    TestModel resident(kModel);
    Engine engine(resident.model.get(), nullptr, kOptions);
    return engine.Generate(Drawn(seed)).ids;
  }

  ThreadPool threads_{2};
  std::shared_ptr<const formats::Checkpoint> checkpoint_;
  std::shared_ptr<FakeDisk> disk_ = std::make_shared<FakeDisk>();
  const std::string usage_;
  model::StoredExperts stored_;
};

TEST_F(StreamedEngine, CallersAndWhoeverAsksForStatistics) {
  std::vector<std::vector<TokenId>> expected;
  for (uint64_t i = 0; i < 4; ++i) expected.push_back(Expected(i));
  // The second time, what the first one used most is read ahead.
  for (const bool warm : {false, true}) {
    const auto model = Load(8);
    Engine engine(model.get(), nullptr, kOptions);
    std::atomic<bool> done = false;
    std::thread observer([&] {
      while (!done) {
        EXPECT_TRUE(engine.stream_stats().has_value());
        std::this_thread::sleep_for(std::chrono::microseconds(500));
      }
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(warm ? 20 : 0));  // Idle has its turns
    std::vector<Result> results(expected.size());
    std::vector<std::thread> callers;
    for (uint64_t i = 0; i < expected.size(); ++i) {
      callers.emplace_back([&, i] { results[i] = engine.Generate(Drawn(i)); });
    }
    for (std::thread& caller : callers) caller.join();
    done = true;
    observer.join();
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(results[i].ids, expected[i]) << i;
    const experts::StoreStats stats = engine.stream_stats()->store;
    EXPECT_GT(stats.missed, 0u);
    EXPECT_GT(stats.busy_seconds, 0.0);
    EXPECT_EQ(std::filesystem::exists(usage_), warm);
  }
}

TEST_F(StreamedEngine, AReadThatFailsEndsTheRequestsThatNeedIt) {
  const auto model = Load(stored_.count == 0 ? 6 : stored_.least_slots);
  Engine engine(model.get(), nullptr, kOptions);
  ASSERT_EQ(engine.Generate(Drawn(1)).ids, Expected(1));
  for (const auto& layer : stored_.layers) {
    for (const auto& expert : layer) disk_->FailReads(expert[0].file, expert[0].offset, -1);
  }
  std::vector<Result> results(3);
  std::vector<std::thread> callers;
  for (uint64_t i = 0; i < results.size(); ++i) {
    callers.emplace_back([&, i] { results[i] = engine.Generate(Drawn(i)); });
  }
  for (std::thread& caller : callers) caller.join();
  for (const Result& result : results) {
    EXPECT_EQ(result.finish_reason, FinishReason::kError);
    ASSERT_TRUE(result.error);
    EXPECT_EQ(result.error->code(), ErrorCode::kIo);
    EXPECT_NE(std::string(result.error->what()).find("expert"), std::string::npos);
  }
  disk_->ClearFaults();
  EXPECT_EQ(engine.Generate(Drawn(2)).ids, Expected(2));
}

// Forward works, what is done between steps does not.
class RestlessModel : public WatchedModel {
 public:
  using WatchedModel::WatchedModel;
  bool Idle() override {
    ++asked;
    throw std::runtime_error("no rest");
  }
  std::atomic<int> asked = 0;
};

TEST_F(StreamedEngine, AFaultBetweenStepsEndsNothing) {
  TestModel test(kModel);
  RestlessModel restless(test.model.get());
  Engine engine(&restless, nullptr, kOptions);
  for (const uint64_t seed : {1, 2}) {
    EXPECT_EQ(engine.Generate(Drawn(seed)).ids, Expected(seed));
  }
  EXPECT_GT(restless.asked, 0);
}

}  // namespace
}  // namespace moewe::engine
