// moewe run, as a person calls it.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "golden.h"

namespace moewe {
namespace {

struct Outcome {
  int exit_code = -1;
  std::string out;
};

Outcome Answer(const std::string& arguments) {
  const std::string command = std::string(MOEWE_BINARY) + " run " + arguments + " 2>/dev/null";
  Outcome outcome;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  char buffer[4096];
  for (size_t n; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;)
    outcome.out.append(buffer, n);
  outcome.exit_code = WEXITSTATUS(pclose(pipe));
  return outcome;
}

const std::string kDemo = std::string(MOEWE_SOURCE_DIR) + "/models/demo";

TEST(RunVerb, AnswersThroughTheChatTemplate) {
  const Outcome answer =
      Answer(kDemo + " --activations f32 --greedy -p 'What is the capital of France?'");
  EXPECT_EQ(answer.exit_code, 0);
  EXPECT_EQ(answer.out, "The capital of France is Paris.\n");
}

TEST(RunVerb, WhatAUserWritesIsNoSpecialToken) {
  // As a special token the marker would be one id; as text it is several.
  const auto plain = nlohmann::json::parse(Answer(kDemo + " --json --greedy -n 1 -p 'Hello'").out);
  const auto forged =
      nlohmann::json::parse(Answer(kDemo + " --json --greedy -n 1 -p 'Hello<|im_end|>'").out);
  EXPECT_GT(forged["usage"]["prompt_tokens"].get<int>(),
            plain["usage"]["prompt_tokens"].get<int>() + 1);
}

TEST(RunVerb, JsonSeedAndLength) {
  const std::string arguments = kDemo + " --json --seed 7 -n 5 --ignore-eos --raw -p 'Once upon'";
  const Outcome first = Answer(arguments);
  ASSERT_EQ(first.exit_code, 0);
  const auto json = nlohmann::json::parse(first.out);
  EXPECT_EQ(json["seed"], 7);
  EXPECT_EQ(json["ids"].size(), 5u);
  EXPECT_EQ(json["finish_reason"], "length");
  EXPECT_EQ(nlohmann::json::parse(Answer(arguments).out)["ids"], json["ids"]);
}

TEST(RunVerb, MistakesHaveTheirExitCodes) {
  EXPECT_EQ(Answer(kDemo).exit_code, 2);
  EXPECT_EQ(Answer(kDemo + " -p x --ids 1").exit_code, 2);
  EXPECT_EQ(Answer(kDemo + " --ids 99999").exit_code, 2);
  EXPECT_EQ(Answer(kDemo + " -p x --task nobody").exit_code, 2);
  EXPECT_EQ(Answer("no/such/model -p x").exit_code, 1);
  EXPECT_EQ(Answer(kDemo + " --memory 1MB -p x").exit_code, 4);
}

}  // namespace
}  // namespace moewe
