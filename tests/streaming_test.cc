// Models larger than --memory, through the program: every verb that runs gives what it gives with
// all weights in memory.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "golden.h"
#include "paths.h"
#include "program.h"

namespace moewe {
namespace {

std::string Ids(int count) {
  std::string ids = "1";
  for (int i = 1; i < count; ++i) ids += "," + std::to_string(i * 37 % 4000);
  return ids;
}

class StreamingTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    model_ = scratch_.At(std::string("demo") + GetParam());
    const std::string kind = GetParam();
    const bool shards = kind == ".shards";
    const std::string how = kind == ".smoe" ? " --bits 4"
                            : shards        ? " --quant q4_tiled --to cmf --shard-max 2MB"
                                            : " --quant q4_tiled";
    if (shards) model_ = scratch_.At("shards.cmf");
    ASSERT_EQ(RunMoewe("convert " + paths::DemoModel() + " " + model_ + how).code, 0);
    if (shards) {
      for (const auto& entry : std::filesystem::directory_iterator(scratch_.At(""))) {
        const std::string name = entry.path().filename().string();
        if (name.starts_with("shards-00001-of-")) model_ = entry.path().string();
      }
      ASSERT_TRUE(std::filesystem::exists(model_)) << "there are no shards";
    }
    least_ = RunMoewe("plan --json --memory min " + model_).json()["total"];
    full_ = RunMoewe("plan --json --memory 1GB " + model_).json()["total"];
  }

  std::string At(const std::string& name) const { return scratch_.At(name); }

  // A few from the least to all.
  std::vector<std::string> Budgets() const {
    std::vector<std::string> budgets;
    for (const uint64_t part : {0, 1, 4, 8}) {
      budgets.push_back(std::to_string(least_ + (full_ - least_) * part / 8));
    }
    budgets.emplace_back("min");
    return budgets;
  }

  ScratchFolder scratch_;
  std::string model_;
  uint64_t least_ = 0;
  uint64_t full_ = 0;
};

TEST_P(StreamingTest, LogitsAndAnswersDoNotDependOnTheBudget) {
  ASSERT_LT(least_, full_);
  const std::string logits = "logits " + model_ + " --ids " + Ids(60) + " --out ";
  ASSERT_EQ(RunMoewe(logits + At("all.f32") + " --memory 1GB").code, 0);
  const std::vector<uint8_t> expected = golden::ReadBytes(At("all.f32"));
  ASSERT_FALSE(expected.empty());
  const std::string run = "run --json " + model_ + " --ids " + Ids(9) + " --greedy -n 12 --memory ";
  const nlohmann::json answer = RunMoewe(run + "1GB").json();
  ASSERT_EQ(answer["ids"].size(), 12u);
  for (const std::string& budget : Budgets()) {
    const Outcome outcome = RunMoewe(logits + At("some.f32") + " --memory " + budget);
    ASSERT_EQ(outcome.code, 0) << budget << ": " << outcome.out;
    EXPECT_EQ(golden::ReadBytes(At("some.f32")), expected) << budget;
    EXPECT_EQ(RunMoewe(run + budget).json()["ids"], answer["ids"]) << budget;
  }
}

TEST_P(StreamingTest, PerplexityAndSpeedOfStreamedModels) {
  const std::string ppl = "ppl --json " + model_ + " " + paths::DemoModel() +
                          "/eval/tales.txt --window 128 --max-windows 2 --chunk 64 --memory ";
  const nlohmann::json all = RunMoewe(ppl + "1GB").json();
  const Outcome least = RunMoewe(ppl + std::to_string(least_ + (8 << 20)));
  ASSERT_EQ(least.code, 0) << least.out;
  EXPECT_EQ(least.json()["ppl"], all["ppl"]);
  const Outcome bench = RunMoewe("bench --json " + model_ + " -p 16 -n 4 -d 8 -r 1 --memory min");
  ASSERT_EQ(bench.code, 0) << bench.out;
  EXPECT_GT(bench.json()["decode"]["tokens_per_s"].get<double>(), 0.0);
}

TEST_P(StreamingTest, EveryHashIsCheckedWhenAskedFor) {
  const std::string run = "run " + model_ + " --ids 1,2,3 --greedy -n 1 --memory min --verify full";
  EXPECT_EQ(RunMoewe(run).code, 0);
  if (std::string(GetParam()) == ".smoe") return;  // vaults have none
  // Some byte in the middle of the experts, which two tokens need not meet.
  const uint64_t size = std::filesystem::file_size(model_);
  std::fstream file(model_, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(size / 2));
  const char byte = static_cast<char>(file.get() ^ 0x41);
  file.seekp(static_cast<std::streamoff>(size / 2));
  file.put(byte);
  file.close();
  const Outcome outcome = RunMoewe(run + " --json");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.json()["error"]["code"], "HashMismatch") << outcome.out;
}

INSTANTIATE_TEST_SUITE_P(Formats, StreamingTest, testing::Values(".cmf", ".smoe", ".shards"),
                         [](const auto& test) { return std::string(test.param).substr(1); });

}  // namespace
}  // namespace moewe
