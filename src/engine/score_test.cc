// Negative log likelihoods: the formula, the windows, and golden values of Hugging Face's models.
#include "engine/score.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "golden.h"
#include "model/kv_cache.h"
#include "moewe/error.h"

namespace moewe::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(NegativeLogLikelihood, IsMinusLogSoftmax) {
  const std::vector<float> logits = {0.0f, std::log(2.0f), -kInfinity, std::log(5.0f)};
  EXPECT_NEAR(NegativeLogLikelihood(logits, 0), std::log(8.0), 1e-7);
  EXPECT_NEAR(NegativeLogLikelihood(logits, 1), std::log(4.0), 1e-7);
  EXPECT_NEAR(NegativeLogLikelihood(logits, 3), std::log(1.6), 1e-7);
  EXPECT_EQ(NegativeLogLikelihood(logits, 2), kInfinity);
}

TEST(NegativeLogLikelihood, DoesNotOverflow) {
  const std::vector<float> logits = {1e30f, 1e30f, -1e30f};
  EXPECT_DOUBLE_EQ(NegativeLogLikelihood(logits, 1), std::log(2.0));
}

TEST(NegativeLogLikelihood, RefusesWhatIsNoDistribution) {
  EXPECT_THROW(NegativeLogLikelihood(std::vector<float>{0.0f, std::nanf("")}, 0), Error);
  EXPECT_THROW(NegativeLogLikelihood(std::vector<float>{0.0f, kInfinity}, 0), Error);
  EXPECT_THROW(NegativeLogLikelihood(std::vector<float>{-kInfinity, -kInfinity}, 0), Error);
}

TEST(WindowCount, AWindowOfOneTokenAtTheEndIsNone) {
  ScoreOptions options;
  options.window = 4;
  EXPECT_EQ(WindowCount(8, options), 2u);
  EXPECT_EQ(WindowCount(9, options), 2u);
  EXPECT_EQ(WindowCount(10, options), 3u);
  options.max_windows = 2;
  EXPECT_EQ(WindowCount(10, options), 2u);
}

struct Subject {
  explicit Subject(const std::string& folder, int num_threads = 2) : threads(num_threads) {
    model::LoadOptions options;
    options.activations = kernels::Activations::kF32;
    model = model::Model::Load(formats::OpenCheckpoint(folder), options, &threads);
  }
  Score Run(std::span<const TokenId> ids, const ScoreOptions& options) {
    model::KvPool pool(model->config(), model::KvType::kF32,
                       (options.window + model::kBlockTokens - 1) / model::kBlockTokens);
    return ScoreTokens(model.get(), &pool, &threads, ids, options);
  }

  ThreadPool threads;
  std::unique_ptr<model::Model> model;
};

std::filesystem::path Family(const std::string& name) { return golden::Path("hf/" + name); }

std::vector<TokenId> SomeIds(size_t n, uint32_t vocab) {
  std::vector<TokenId> ids(n);
  for (size_t i = 0; i < n; ++i) ids[i] = static_cast<TokenId>((i * i + 7 * i) % vocab);
  return ids;
}

TEST(ScoreTokens, EveryWindowIsScoredAlone) {
  Subject subject(Family("qwen3_moe"));
  const std::vector<TokenId> ids = SomeIds(45, subject.model->config().vocab_size);
  ScoreOptions options;
  options.window = 20;
  const Score all = subject.Run(ids, options);
  EXPECT_EQ(all.windows, 3u);
  EXPECT_EQ(all.tokens, 45u);
  ASSERT_EQ(all.nll.size(), 19u + 19u + 4u);
  std::vector<double> apart;
  for (size_t begin = 0; begin < ids.size(); begin += 20) {
    const auto window = std::span(ids).subspan(begin, std::min<size_t>(20, ids.size() - begin));
    const Score one = subject.Run(window, options);
    apart.insert(apart.end(), one.nll.begin(), one.nll.end());
  }
  EXPECT_EQ(all.nll, apart);
  options.max_windows = 1;
  EXPECT_EQ(subject.Run(ids, options).nll, std::vector<double>(apart.begin(), apart.begin() + 19));
}

TEST(ScoreTokens, ResultsDependNeitherOnChunksNorOnThreads) {
  std::vector<Score> scores;
  for (const int threads : {1, 3}) {
    Subject subject(Family("qwen3_moe"), threads);
    const std::vector<TokenId> ids = SomeIds(41, subject.model->config().vocab_size);
    for (const uint32_t chunk : {256u, 1u, 7u}) {
      ScoreOptions options;
      options.window = 40;
      options.chunk = chunk;
      scores.push_back(subject.Run(ids, options));
    }
  }
  EXPECT_EQ(scores[0].tokens, 40u);
  for (const Score& score : scores) EXPECT_EQ(score.nll, scores[0].nll);
}

TEST(ScoreTokens, RefusesWhatPredictsNothing) {
  Subject subject(Family("qwen2"));
  const auto code = [&](std::vector<TokenId> ids, ScoreOptions options) {
    try {
      subject.Run(ids, options);
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::kInternal;
  };
  EXPECT_EQ(code({}, {}), ErrorCode::kUsage);
  EXPECT_EQ(code({1}, {}), ErrorCode::kUsage);
  EXPECT_EQ(code({1, 2, 3}, {.window = 1}), ErrorCode::kUsage);
  EXPECT_EQ(code({1, 2, 3}, {.window = 0}), ErrorCode::kUsage);
  EXPECT_EQ(code({1, -1, 3}, {}), ErrorCode::kUsage);
  EXPECT_EQ(code({1, 2, 1 << 30}, {}), ErrorCode::kUsage);
  const std::atomic<bool> cancelled = true;
  EXPECT_EQ(code({1, 2, 3}, {.cancel = &cancelled}), ErrorCode::kInterrupted);
}

// Every family whose golden holds a perplexity and that this build can run.
std::vector<std::string> FamiliesWithNll() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden::Path("hf"))) {
    if (!entry.is_directory()) continue;
    if (golden::ReadJson(entry.path() / "golden.json").contains("perplexity")) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::ranges::sort(names);
  return names;
}

class NllGolden : public testing::TestWithParam<std::string> {};

TEST_P(NllGolden, OfHuggingFace) {
  const std::filesystem::path folder = Family(GetParam());
  const nlohmann::json json = golden::ReadJson(folder / "golden.json");
  std::unique_ptr<Subject> subject;
  try {
    subject = std::make_unique<Subject>(folder.string());
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
    GTEST_SKIP() << error.what();
  }
  const auto ids = json["perplexity"]["ids"].get<std::vector<TokenId>>();
  const Score score = subject->Run(ids, {});
  const std::vector<uint8_t> bytes = golden::ReadBytes(folder / "golden.bin");
  const nlohmann::json& array = json["arrays"]["ppl.nll"];
  std::vector<float> expected(array["shape"][0].get<size_t>());
  std::memcpy(expected.data(), bytes.data() + array["offset"].get<size_t>(), 4 * expected.size());
  ASSERT_EQ(score.nll.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(score.nll[i], expected[i], 1e-3) << i;
  EXPECT_NEAR(score.MeanNll(), json["perplexity"]["mean_nll"].get<double>(), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(All, NllGolden, testing::ValuesIn(FamiliesWithNll()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace moewe::engine
