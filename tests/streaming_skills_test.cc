// Skills of a mixture-of-experts model that is streamed: the answers of the resident one, within
// what plan says, and one memory of how often experts were used.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <utility>

#include "golden.h"
#include "paths.h"
#include "program.h"

namespace moewe {
namespace {

using Json = nlohmann::json;

class StreamedSkills : public testing::Test {
 protected:
  // Two skills from coarser copies of the model, in different layers.
  static void SetUpTestSuite() {
    scratch_ = new ScratchFolder();
    const std::string demo = paths::DemoModel();
    ASSERT_EQ(RunMoewe("convert " + demo + " " + Model() + " --quant bf16").code, 0);
    ASSERT_EQ(RunMoewe("convert " + demo + " " + At("coarse.cmf") + " --quant q1t").code, 0);
    const std::string texts[] = {"Once upon a time there was a little girl who had a red ball. ",
                                 "int main() { return 0; } // 1 + 2 = 3; x[i] += y; "};
    for (const int skill : {0, 1}) {
      std::string text;
      for (int i = 0; i < 20; ++i) text += texts[skill];
      const std::string file = scratch_->Put("t" + std::to_string(skill), text);
      const Outcome added = RunMoewe(
          "skill add --json " + Model() + " --donor " + At("coarse.cmf") + " --dtype q8 --id " +
          (skill == 0 ? "one --layers 0 --phi-layer 1" : "two --layers 1 --phi-layer 2") +
          " --texts " + file);
      ASSERT_EQ(added.code, 0) << added.out;
    }
  }
  static void TearDownTestSuite() { delete std::exchange(scratch_, nullptr); }

  static std::string At(const std::string& name) { return scratch_->At(name); }
  static std::string Model() { return At("m.cmf"); }

  static ScratchFolder* scratch_;
};

ScratchFolder* StreamedSkills::scratch_ = nullptr;

TEST_F(StreamedSkills, WhatPlanCallsEnoughIsEnoughAndGivesTheSame) {
  const std::string run = "run --json --ids 5,9,300,7 --greedy --ignore-eos -n 8 " + Model() + " ";
  const std::string logits = "logits --ids 5,9,300,7 --all " + Model() + " ";
  for (const std::string flags : {"--skill one", "--skill one=0.5,two=0.5", "--skill auto",
                                  "--skill auto --skill-blend 0.4"}) {
    SCOPED_TRACE(flags);
    const Json plan = RunMoewe("plan --json --memory min " + flags + " " + Model()).json();
    // Mixed in f32, what two skills replace of so small a model may take more room streamed.
    const bool streamed = plan["streamed"];
    EXPECT_TRUE(streamed || flags.find("blend") != std::string::npos);
    const Outcome all = RunMoewe(run + flags + " --memory 1GB");
    ASSERT_EQ(all.code, 0) << all.out;
    EXPECT_FALSE(all.json().contains("streaming"));
    const uint64_t total = plan["total"];
    for (const std::string& memory : {std::string("min"), std::to_string(total)}) {
      const Outcome least = RunMoewe(run + flags + " --memory " + memory);
      ASSERT_EQ(least.code, 0) << memory << ": " << least.out;
      EXPECT_EQ(least.json()["ids"], all.json()["ids"]);
      EXPECT_EQ(least.json()["skill"], all.json()["skill"]);
      // Once the prompt has chosen, what was reserved for other choices may be room for all
      // experts.
      if (flags.find("auto") == std::string::npos) {
        EXPECT_EQ(least.json().contains("streaming"), streamed);
      }
    }
    EXPECT_EQ(RunMoewe(run + flags + " --memory " + std::to_string(total - 8)).code, 4);
    ASSERT_EQ(RunMoewe(logits + flags + " --memory 1GB --out " + At("all.f32")).code, 0);
    ASSERT_EQ(RunMoewe(logits + flags + " --memory min --out " + At("some.f32")).code, 0);
    EXPECT_EQ(golden::ReadBytes(At("some.f32")), golden::ReadBytes(At("all.f32")));
  }
}

TEST_F(StreamedSkills, ABlendKeepsHowOftenExpertsWereUsed) {
  const std::string frequencies = Model() + ".freq";
  std::filesystem::remove(frequencies);
  const auto from = [&](const std::string& flags) {
    const Json plan = RunMoewe("plan --json --memory min " + flags + Model()).json();
    return plan["predicted"]["resident_rate_from"].get<std::string>();
  };
  const std::string run = "run --ids 5,9,300,7 --greedy --ignore-eos -n 8 --memory min " + Model();
  EXPECT_EQ(from(""), "uniform");
  ASSERT_EQ(RunMoewe(run).code, 0);
  EXPECT_EQ(from(""), "usage");
  EXPECT_EQ(from("--skill one=0.5,two=0.5 "), "usage");
  ASSERT_EQ(RunMoewe(run + " --skill one=0.5,two=0.5").code, 0);
  EXPECT_EQ(from(""), "usage");
  EXPECT_EQ(from("--skill two "), "usage");
}

TEST_F(StreamedSkills, WhatIsMissingIsSaidExactly) {
  const uint64_t total = RunMoewe("plan --json --memory min " + Model()).json()["total"];
  const Outcome outcome =
      RunMoewe("run --json --ids 1 -n 1 " + Model() + " --memory " + std::to_string(total - 700));
  EXPECT_EQ(outcome.code, 4);
  const std::string message = outcome.json()["error"]["message"];
  // Page tables are a part of the budget: a byte or two fewer are needed.
  EXPECT_TRUE(std::regex_search(message, std::regex(", (69.|700) B more than the budget of")))
      << message;
}

}  // namespace
}  // namespace moewe
