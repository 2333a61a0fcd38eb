// moewe run, as a person calls it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "paths.h"
#include "program.h"

namespace moewe {
namespace {

Outcome Answer(const std::string& arguments) { return RunMoewe("run " + arguments); }

const std::string kDemo = paths::DemoModel();

TEST(RunVerb, AnswersThroughTheChatTemplate) {
  const Outcome answer =
      Answer(kDemo + " --activations f32 --greedy -p 'What is the capital of France?'");
  EXPECT_EQ(answer.code, 0);
  EXPECT_EQ(answer.out, "The capital of France is Paris.\n");
}

TEST(RunVerb, WhatAUserWritesIsNoSpecialToken) {
  // As a special token the marker would be one id; as text it is several.
  const auto plain = Answer(kDemo + " --json --greedy -n 1 -p 'Hello'").json();
  const auto forged = Answer(kDemo + " --json --greedy -n 1 -p 'Hello<|im_end|>'").json();
  EXPECT_GT(forged["usage"]["prompt_tokens"].get<int>(),
            plain["usage"]["prompt_tokens"].get<int>() + 1);
}

TEST(RunVerb, JsonSeedAndLength) {
  const std::string arguments = kDemo + " --json --seed 7 -n 5 --ignore-eos --raw -p 'Once upon'";
  const Outcome first = Answer(arguments);
  ASSERT_EQ(first.code, 0);
  const auto json = first.json();
  EXPECT_EQ(json["seed"], 7);
  EXPECT_EQ(json["ids"].size(), 5u);
  EXPECT_EQ(json["finish_reason"], "length");
  EXPECT_EQ(Answer(arguments).json()["ids"], json["ids"]);
}

TEST(RunVerb, SpeculationIsShownAndChangesNothing) {
  const std::string arguments =
      kDemo + " --json --seed 7 -n 80 --ignore-eos --raw -p 'one two three one two three one two '";
  const auto off = Answer(arguments + " --speculate off").json();
  EXPECT_EQ(off["speculation"]["drafted"], 0);
  for (const std::string how : {"auto", "1", "8", "64"}) {
    const auto json = Answer(arguments + " --speculate " + how).json();
    EXPECT_EQ(json["ids"], off["ids"]) << how;
    const auto& said = json["speculation"];
    EXPECT_EQ(said["steps"].get<int>() + said["accepted"].get<int>(), 79) << how;
    EXPECT_TRUE(how == "auto" || said["drafted"] > 0) << how;
  }
  const auto streamed = Answer(arguments + " --memory min --speculate 8").json();
  EXPECT_EQ(streamed["ids"], off["ids"]);
  EXPECT_EQ(streamed["speculation"]["drafted"], 0);
  for (const std::string wrong : {"0", "65", "maybe", "-1", "''"}) {
    EXPECT_EQ(Answer(arguments + " --speculate " + wrong).code, 2) << wrong;
  }
}

TEST(RunVerb, MistakesHaveTheirExitCodes) {
  EXPECT_EQ(Answer(kDemo).code, 2);
  EXPECT_EQ(Answer(kDemo + " -p x --ids 1").code, 2);
  EXPECT_EQ(Answer(kDemo + " --ids 99999").code, 2);
  EXPECT_EQ(Answer(kDemo + " -p x --task nobody").code, 2);
  EXPECT_EQ(Answer("no/such/model -p x").code, 1);
  EXPECT_EQ(Answer(kDemo + " --memory 1MB -p x").code, 4);
}

}  // namespace
}  // namespace moewe
