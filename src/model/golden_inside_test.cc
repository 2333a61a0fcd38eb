// What happens inside of the forward pass, against Hugging Face (tests/golden/hf): hidden states,
// outputs of attention and FFN, choice and weights of experts; and the logits of files that another
// program converted (tests/golden/cmf/families). Every folder and file is found by listing; a
// family that moewe cannot run yet is skipped by name.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "hf_golden.h"
#include "model/kv_cache.h"
#include "model/model.h"
#include "moewe/error.h"

namespace moewe::model {
namespace {

using golden::HfGolden;

// Null, with the reason, for what cannot be run yet.
std::unique_ptr<Model> LoadF32(const std::string& path, ThreadPool* threads, std::string* reason) {
  LoadOptions options;
  options.activations = kernels::Activations::kF32;
  try {
    return Model::Load(formats::OpenCheckpoint(path), options, threads);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
    *reason = error.what();
    return nullptr;
  }
}

using Rows = std::vector<std::vector<float>>;

// Values of the last row seen, by layer, and the routing of every row.
class Recorder : public ForwardObserver {
 public:
  explicit Recorder(size_t width) : width_(width) {}

  void OnHidden(int layer, const float* data, size_t rows) override {
    Keep(static_cast<size_t>(layer + 1), data, rows, &hidden);
  }
  void OnFinalNorm(const float* data, size_t rows) override { Keep(0, data, rows, &final_norm); }
  void OnAttention(int layer, const float* data, size_t rows) override {
    Keep(static_cast<size_t>(layer), data, rows, &attention);
  }
  void OnFfn(int layer, const float* data, size_t rows) override {
    Keep(static_cast<size_t>(layer), data, rows, &ffn);
  }
  void OnRouter(int layer, const uint32_t* ids, const float* weights, size_t rows,
                size_t top_k) override {
    nlohmann::json& entry = router[std::to_string(layer)];
    for (size_t row = 0; row < rows; ++row) {
      const size_t at = row * top_k;
      entry["ids"].push_back(std::vector<uint32_t>(ids + at, ids + at + top_k));
      entry["weights"].push_back(std::vector<float>(weights + at, weights + at + top_k));
    }
  }

  Rows hidden, final_norm, attention, ffn;
  nlohmann::json router = nlohmann::json::object();

 private:
  void Keep(size_t index, const float* data, size_t rows, Rows* out) const {
    if (out->size() <= index) out->resize(index + 1);
    const float* last = data + (rows - 1) * width_;
    (*out)[index].assign(last, last + width_);
  }

  size_t width_;
};

// Logits of the last position, or of all of them.
std::vector<float> RunPrompt(Model* model, std::span<const TokenId> ids, size_t chunk,
                             SequenceChunk::Logits wanted, ForwardObserver* observer) {
  KvPool pool(model->config(), KvType::kF32, (ids.size() + kBlockTokens - 1) / kBlockTokens);
  Sequence sequence(&pool);
  std::vector<float> logits;
  for (size_t begin = 0; begin < ids.size(); begin += chunk) {
    SequenceChunk part;
    part.sequence = &sequence;
    part.tokens = ids.subspan(begin, std::min(chunk, ids.size() - begin));
    part.logits = wanted;
    if (wanted == SequenceChunk::Logits::kLast) logits.clear();
    model->Forward({&part, 1}, &logits, observer);
  }
  return logits;
}

double Deviation(const float* x, size_t n) {
  double sum = 0.0, squares = 0.0;
  for (size_t i = 0; i < n; ++i) sum += x[i];
  const double mean = sum / static_cast<double>(n);
  for (size_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
  return std::sqrt(squares / static_cast<double>(n));
}

// Rows within 2e-4 of their own standard deviation.
void ExpectRows(const HfGolden& golden, const std::string& name, const Rows& actual) {
  if (!golden.Has(name)) return;
  SCOPED_TRACE(name);
  const std::vector<float> expected = golden.Array(name);
  ASSERT_FALSE(actual.empty());
  const size_t width = actual[0].size();
  ASSERT_EQ(expected.size(), actual.size() * width);
  for (size_t row = 0; row < actual.size(); ++row) {
    const float* want = expected.data() + row * width;
    ASSERT_EQ(actual[row].size(), width);
    double worst = 0.0;
    for (size_t i = 0; i < width; ++i) {
      ASSERT_TRUE(std::isfinite(actual[row][i]));
      worst = std::max(worst, std::abs(static_cast<double>(actual[row][i]) - want[i]));
    }
    EXPECT_LE(worst, 2e-4 * Deviation(want, width)) << "row " << row;
  }
}

void ExpectRouting(const nlohmann::json& actual, const nlohmann::json& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [layer, want] : expected.items()) {
    SCOPED_TRACE("router of layer " + layer);
    ASSERT_TRUE(actual.contains(layer));
    EXPECT_EQ(actual[layer]["ids"], want["ids"]);
    const auto weights = actual[layer]["weights"].get<Rows>();
    const auto want_weights = want["weights"].get<Rows>();
    ASSERT_EQ(weights.size(), want_weights.size());
    for (size_t row = 0; row < weights.size(); ++row) {
      ASSERT_EQ(weights[row].size(), want_weights[row].size());
      for (size_t k = 0; k < weights[row].size(); ++k) {
        EXPECT_NEAR(weights[row][k], want_weights[row][k], 1e-4);
      }
    }
  }
}

class InsideGolden : public testing::TestWithParam<std::string> {};

TEST_P(InsideGolden, HiddenStatesBranchesAndRouting) {
  const HfGolden golden(GetParam());
  ThreadPool threads(2);
  std::string reason;
  const auto model = LoadF32(golden.folder.string(), &threads, &reason);
  if (model == nullptr) GTEST_SKIP() << reason;
  const std::vector<TokenId> ids = golden.Ids("p9");
  for (const size_t chunk : {ids.size(), size_t{1}}) {
    SCOPED_TRACE("chunk " + std::to_string(chunk));
    Recorder recorder(model->config().hidden_size);
    RunPrompt(model.get(), ids, chunk, SequenceChunk::Logits::kLast, &recorder);
    ExpectRows(golden, "p9.hidden", recorder.hidden);
    ExpectRows(golden, "p9.final_norm", recorder.final_norm);
    ExpectRows(golden, "p9.attn_out", recorder.attention);
    ExpectRows(golden, "p9.mlp_out", recorder.ffn);
    if (golden.json.contains("router_p9")) {
      ExpectRouting(recorder.router, golden.json["router_p9"]);
    } else {
      EXPECT_TRUE(recorder.router.empty());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, InsideGolden, testing::ValuesIn(golden::HfFamilies()),
                         [](const auto& test) { return test.param; });

std::vector<std::string> ConvertedFamilies() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden::Path("cmf/families"))) {
    if (entry.path().extension() == ".cmf") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

class ConvertedGolden : public testing::TestWithParam<std::string> {};

TEST_P(ConvertedGolden, FilesOfTheExistingRuntime) {
  const HfGolden golden(GetParam());
  ThreadPool threads(2);
  std::string reason;
  const auto model =
      LoadF32(golden::Path("cmf/families/" + GetParam() + ".cmf").string(), &threads, &reason);
  if (model == nullptr) GTEST_SKIP() << reason;
  const double tolerance = 1e-3 * golden.json["logit_std"].get<double>();
  for (const std::string prompt : {"p1", "p9", "p70"}) {
    SCOPED_TRACE(prompt);
    const bool all = prompt == "p9";
    const std::vector<TokenId> ids = golden.Ids(prompt);
    const std::vector<float> logits =
        RunPrompt(model.get(), ids, ids.size(),
                  all ? SequenceChunk::Logits::kAll : SequenceChunk::Logits::kLast, nullptr);
    const std::vector<float> expected = golden.Array(prompt + (all ? ".logits" : ".last_logits"));
    ASSERT_EQ(logits.size(), expected.size());
    double worst = 0.0;
    for (size_t i = 0; i < logits.size(); ++i) {
      worst = std::max(worst, std::abs(static_cast<double>(logits[i]) - expected[i]));
    }
    EXPECT_LE(worst, tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ConvertedGolden, testing::ValuesIn(ConvertedFamilies()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace moewe::model
