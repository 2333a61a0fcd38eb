// Logits and greedy tokens in f32: every supported family against Hugging Face (tests/golden/hf),
// and existing files of every dtype that can be read (tests/golden/cmf/files).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "hf_golden.h"
#include "model/kv_cache.h"
#include "model/model.h"

namespace moewe::model {
namespace {

constexpr double kTolerance = 2e-4;  // of the logits' standard deviation

using Golden = golden::HfGolden;

// Logits of `ids`, `chunk` tokens a step; then `extra` greedy tokens are appended to *ids.
std::vector<float> Logits(Model* model, std::vector<TokenId>* ids, size_t chunk,
                          SequenceChunk::Logits wanted, size_t extra = 0) {
  KvPool pool(model->config(), KvType::kF32, 16);
  Sequence sequence(&pool);
  std::vector<float> all;
  std::vector<float> logits;
  const auto step = [&](std::span<const TokenId> tokens, SequenceChunk::Logits which) {
    SequenceChunk part;
    part.sequence = &sequence;
    part.tokens = tokens;
    part.logits = which;
    logits.clear();
    model->Forward({&part, 1}, &logits);
  };
  const size_t prompt = ids->size();
  for (size_t begin = 0; begin < prompt; begin += chunk) {
    const size_t n = std::min(chunk, prompt - begin);
    step(std::span(*ids).subspan(begin, n), wanted);
    if (wanted == SequenceChunk::Logits::kAll) all.insert(all.end(), logits.begin(), logits.end());
  }
  if (wanted == SequenceChunk::Logits::kLast) all = logits;
  const size_t vocab = model->config().vocab_size;
  for (size_t i = 0; i < extra; ++i) {
    const auto last = logits.end() - static_cast<ptrdiff_t>(vocab);
    ids->push_back(static_cast<TokenId>(std::max_element(last, logits.end()) - last));
    step({&ids->back(), 1}, SequenceChunk::Logits::kLast);
  }
  return all;
}

void ExpectNear(const std::vector<float>& actual, const std::vector<float>& expected,
                double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  double worst = 0.0;
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_TRUE(std::isfinite(actual[i])) << i;
    worst = std::max(worst, std::abs(static_cast<double>(actual[i]) - expected[i]));
  }
  EXPECT_LE(worst, tolerance);
}

class FamilyGolden : public testing::TestWithParam<const char*> {};

TEST_P(FamilyGolden, LogitsAndGreedyTokensInPrefillAndTokenByToken) {
  const Golden golden(GetParam());
  ThreadPool threads(2);
  LoadOptions options;
  options.activations = kernels::Activations::kF32;
  const auto model =
      Model::Load(formats::OpenCheckpoint(golden.folder.string()), options, &threads);
  const double tolerance = kTolerance * golden.json["logit_std"].get<double>();
  std::vector<std::vector<float>> by_chunk;
  for (const size_t chunk : {size_t{512}, size_t{1}, size_t{3}}) {
    for (const nlohmann::json& prompt : golden.json["prompts"]) {
      SCOPED_TRACE(prompt["name"].get<std::string>() + ", chunk " + std::to_string(chunk));
      auto ids = prompt["ids"].get<std::vector<TokenId>>();
      const size_t length = ids.size();
      const bool all = prompt["name"] == "p9";
      const std::vector<float> logits =
          Logits(model.get(), &ids, chunk,
                 all ? SequenceChunk::Logits::kAll : SequenceChunk::Logits::kLast, 16);
      ExpectNear(
          logits,
          golden.Array(all ? "p9.logits" : prompt["name"].get<std::string>() + ".last_logits"),
          tolerance);
      ids.erase(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(length));
      EXPECT_EQ(ids, prompt["greedy_ids"].get<std::vector<TokenId>>());
      if (all) by_chunk.push_back(logits);
    }
  }
  // Bit for bit, not just near: the result of a position does not depend on the chunk.
  EXPECT_EQ(by_chunk[0], by_chunk[1]);
  EXPECT_EQ(by_chunk[0], by_chunk[2]);
}

INSTANTIATE_TEST_SUITE_P(All, FamilyGolden,
                         testing::Values("llama", "mistral", "qwen2", "qwen3", "phi3", "mixtral",
                                         "olmoe", "qwen2_moe", "qwen3_moe", "gemma", "gemma2",
                                         "gemma3", "granitemoe", "glm4_moe", "minimax_m2",
                                         "ernie4_5_moe", "deepseek_v2", "deepseek_v2_lite",
                                         "deepseek_v3", "gpt_oss", "laguna", "looped",
                                         "looped_nonorm"),
                         [](const auto& test) { return std::string(test.param); });

class FileGolden : public testing::TestWithParam<const char*> {};

// The skills of a run: none, one, or a blend.
SkillChoice SkillsOfRun(const nlohmann::json& run) {
  SkillChoice choice;
  if (!run["skill"].is_null()) choice.push_back({run["skill"].get<std::string>(), 1.0});
  for (const nlohmann::json& part : run.value("blend", nlohmann::json::array())) {
    choice.push_back({part[0].get<std::string>(), part[1].get<double>()});
  }
  return choice;
}

// Every run: with each task, skill and blend that it names, and without any.
TEST_P(FileGolden, LogitsAndGreedyTokensOfExistingFiles) {
  const std::filesystem::path folder = golden::Path("cmf/files");
  const nlohmann::json expected =
      golden::ReadJson(folder / (std::string(GetParam()) + ".expected.json"));
  ThreadPool threads(2);
  LoadOptions options;
  options.activations = kernels::Activations::kF32;
  const std::shared_ptr<const formats::Checkpoint> file =
      formats::OpenCheckpoint((folder / expected["file"].get<std::string>()).string());
  size_t runs = 0;
  for (const nlohmann::json& run : expected["runs"]) {
    SCOPED_TRACE(run["tag"].get<std::string>());
    ++runs;
    options.skills = SkillsOfRun(run);
    options.task = run["task"].is_null() ? "none" : run["task"].get<std::string>();
    const auto model = Model::Load(file, options, &threads);
    std::vector<float> logits;
    for (size_t p = 0; p < run["prompts"].size(); ++p) {
      auto ids = run["prompts"][p].get<std::vector<TokenId>>();
      const size_t length = ids.size();
      const auto greedy = run["greedy"][p].get<std::vector<TokenId>>();
      const std::vector<float> rows =
          Logits(model.get(), &ids, 512, SequenceChunk::Logits::kAll, greedy.size());
      // Token by token the same bits: prefill and decode skip the same things.
      std::vector<TokenId> prompt(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(length));
      EXPECT_EQ(rows, Logits(model.get(), &prompt, 1, SequenceChunk::Logits::kAll));
      logits.insert(logits.end(), rows.begin(), rows.end());
      ids.erase(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(length));
      EXPECT_EQ(ids, greedy) << "prompt " << p;
    }
    ExpectNear(logits, golden::ReadF32(folder / run["logits"].get<std::string>()), 2e-4);
  }
  EXPECT_GT(runs, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    All, FileGolden,
    testing::Values("dense_qwen2_f32", "dense_qwen3_f16", "dense_qwen3_q8", "dense_qwen3_q8_2f",
                    "dense_qwen3_q4", "dense_qwen3_q4t", "dense_qwen3_q4tp", "moe_qwen2_f32",
                    "moe_qwen2_q8", "moe_qwen3_q4tp", "moe_qwen3_q4tp_moedefrag",
                    "moe_qwen3_q4tp_moedefrag_again", "moe_qwen2_q8_moedefrag",
                    "moe_qwen2_q8_moedefrag_again", "defrag_q8_2f", "defrag_q4t", "unsharded_q8_2f",
                    "skill_base", "mtp_tiny", "dense_qwen3_vbit", "dense_qwen3_py_vbit8",
                    "dense_qwen3_q1", "dense_qwen3_q1s", "dense_qwen3_q1t", "dense_qwen3_gptq_q1s",
                    "dense_qwen3_gptq_q1t", "mixed_all_dtypes", "moe_qwen3_py_vbit_joint",
                    "sharded", "masks_llama_f32", "masks_llama_q8row", "masks_qwen3_q8row",
                    "loop_masks", "loop_masks_finalnorm", "moe_qwen2_q8_expertmask",
                    "moe_qwen3_q4tp_expertmask", "specialist", "applied", "layout_permuted",
                    "layout_gap", "legacy_zero_hashes", "unknown_header_fields", "flags_nonzero",
                    "skills_1", "skills_2", "skill_sparse", "skill_appended",
                    "skill_appended_compacted"),
    [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace moewe::model
