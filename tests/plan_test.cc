// moewe plan, and the budget of the verbs that run: the same arithmetic.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "golden.h"
#include "paths.h"
#include "program.h"

namespace moewe {
namespace {

const std::string kDemo = paths::DemoModel();

nlohmann::json Plan(const std::string& arguments) {
  const Outcome outcome = RunMoewe("plan --json " + arguments);
  EXPECT_EQ(outcome.code, 0) << outcome.out;
  return outcome.json();
}

TEST(PlanVerb, PartsAddUpAndAreWithinTheBudget) {
  const nlohmann::json plan = Plan(kDemo + " --memory 1GB");
  uint64_t sum = 0;
  for (const auto& [name, bytes] : plan["parts"].items()) sum += bytes.get<uint64_t>();
  EXPECT_EQ(plan["total"], sum);
  EXPECT_EQ(plan["budget"], 1000000000);
  EXPECT_LE(sum, plan["budget"].get<uint64_t>());
  EXPECT_EQ(plan["context"], 1024);
  EXPECT_GT(plan["scan"]["bytes_per_s"].get<double>(), 1e6);
  const double predicted = plan["predicted"]["tokens_per_s"];
  EXPECT_NEAR(predicted * plan["bytes_per_token"]["weights"].get<double>(),
              plan["scan"]["bytes_per_s"].get<double>(),
              1e-6 * plan["scan"]["bytes_per_s"].get<double>());
  EXPECT_LT(plan["predicted"]["tokens_per_s_at_context"], predicted);
  EXPECT_EQ(Plan(kDemo + " --kv f32 --memory 1GB")["parts"]["kv"].get<uint64_t>(),
            2 * plan["parts"]["kv"].get<uint64_t>());
}

TEST(PlanVerb, WhatPlanCallsEnoughIsEnoughAndOneByteLessIsNot) {
  const std::string ids = " --ids 1,2,3 --raw --greedy -n 1";
  const uint64_t least = Plan(kDemo + " --memory min")["total"];
  EXPECT_EQ(RunMoewe("run " + kDemo + ids + " --memory " + std::to_string(least)).code, 0);
  EXPECT_EQ(RunMoewe("run " + kDemo + ids + " --memory " + std::to_string(least - 1)).code, 4);
  const uint64_t full = Plan(kDemo + " --ctx 1024 --memory min")["total"];
  EXPECT_GT(full, least);
  const std::string asked = ids + " --ctx 1024 --memory ";
  EXPECT_EQ(RunMoewe("run " + kDemo + asked + std::to_string(full)).code, 0);
  EXPECT_EQ(RunMoewe("run " + kDemo + asked + std::to_string(full - 1)).code, 4);
}

TEST(PlanVerb, ExpertsAreStreamedWhenTheyDoNotFit) {
  const std::string demo = kDemo + " --ctx 1024 --speculate off --memory ";
  const nlohmann::json full = Plan(demo + "1GB");
  EXPECT_EQ(full["streamed"], false);
  EXPECT_EQ(full["parts"]["experts"], full["expert_bytes"]);
  const nlohmann::json less = Plan(demo + std::to_string(full["total"].get<uint64_t>() - 1));
  EXPECT_EQ(less["streamed"], true);
  EXPECT_EQ(less["expert_bytes"], full["expert_bytes"]);
  EXPECT_LT(less["parts"]["experts"], full["expert_bytes"]);
  uint64_t sum = 0;
  for (const auto& [name, bytes] : less["parts"].items()) sum += bytes.get<uint64_t>();
  EXPECT_EQ(less["total"], sum);
}

TEST(PlanVerb, RowsOfLogitsForSpeculationAreCounted) {
  const std::string demo = kDemo + " --ctx 1024 --memory ";
  const uint64_t off = Plan(demo + "1GB --speculate off")["total"];
  const uint64_t row = 4u * 4096;
  EXPECT_EQ(Plan(demo + "1GB --speculate 20")["total"], off + 20 * row);
  // What pays is done where there is room: it makes no model streamed.
  EXPECT_EQ(Plan(demo + "1GB")["total"], off + 8 * row);
  EXPECT_EQ(Plan(demo + std::to_string(off))["total"], off);
  EXPECT_EQ(Plan(demo + std::to_string(off) + " --speculate 20")["streamed"], true);
}

TEST(PlanVerb, WhatDoesNotFitIsRefusedWithItsParts) {
  const Outcome outcome = RunMoewe("plan --json " + kDemo + " --memory 5MB");
  EXPECT_EQ(outcome.code, 4);
  const nlohmann::json error = outcome.json()["error"];
  EXPECT_EQ(error["code"], "OutOfBudget");
  for (const char* part : {"trunk", "experts", "KV cache", "activations"}) {
    EXPECT_NE(error["message"].get<std::string>().find(part), std::string::npos) << part;
  }
  EXPECT_EQ(RunMoewe("plan " + kDemo + " --ctx 1025").code, 2);
  EXPECT_EQ(RunMoewe("plan " + kDemo + " --memory much").code, 2);
}

TEST(PlanVerb, TakesTheFlagsOfRunning) {
  const std::string masks = golden::Path("cmf/files/masks_llama_f32.cmf").string();
  EXPECT_EQ(RunMoewe("plan " + masks + " --task gated").code, 0);
  EXPECT_EQ(RunMoewe("plan " + masks + " --task none").code, 0);
  EXPECT_EQ(RunMoewe("plan --json " + masks + " --task nobody").json()["error"]["code"],
            "UnknownName");
  // Rows of 32 channels: 34 bytes where f16 takes 64.
  const double f16 = Plan(kDemo + " --ctx 1024 --kv f16")["parts"]["kv"];
  EXPECT_EQ(Plan(kDemo + " --ctx 1024 --kv q8")["parts"]["kv"], f16 * 34 / 64);
  EXPECT_EQ(RunMoewe("plan " + kDemo + " --kv q7").code, 2);
}

// Perplexity and `logits --all` hold the logits of many positions; a budget without room for them
// is refused, and one with it is enough.
TEST(PlanVerb, LogitsOfEveryPositionAreCounted) {
  const ScratchFolder scratch;
  const std::string text = kDemo + "/eval/tales.txt";
  const uint64_t total = Plan(kDemo + " --ctx 256 --chunk 256 --memory min")["total"];
  const uint64_t counted = 255u * 4 * 4096;       // of 256 one is counted
  const uint64_t rows = counted + counted / 256;  // page tables are a part of everything
  std::string ids = "1";
  for (int i = 1; i < 256; ++i) ids += ",1";
  const std::string ppl =
      "ppl " + kDemo + " " + text + " --window 256 --max-windows 1" + " --chunk 256 --memory ";
  const std::string logits = "logits " + kDemo + " --ids " + ids + " --ctx 256 --chunk 256 --out " +
                             scratch.At("l.f32") + " --memory ";
  const std::string logits_all = "logits --all" + logits.substr(6);
  for (const std::string& verb : {ppl, logits_all}) {
    EXPECT_EQ(RunMoewe(verb + std::to_string(total)).code, 4) << verb;
    EXPECT_EQ(RunMoewe(verb + std::to_string(total + rows)).code, 0) << verb;
  }
  EXPECT_EQ(RunMoewe(logits + std::to_string(total)).code, 0);
}

TEST(PlanVerb, AShrunkContextIsWhatTheVerbsThatRunGet) {
  const nlohmann::json full = Plan(kDemo + " --memory 1GB");
  const uint64_t budget =
      full["total"].get<uint64_t>() - full["parts"]["kv"].get<uint64_t>() * 5 / 8;
  const nlohmann::json plan = Plan(kDemo + " --memory " + std::to_string(budget));
  EXPECT_EQ(plan["context"], 384);
  EXPECT_EQ(plan["context_shrunk"], true);
  const nlohmann::json result =
      RunMoewe("run --json " + kDemo + " --ids 1,2,3 --greedy --ignore-eos" + " --memory " +
               std::to_string(budget))
          .json();
  EXPECT_EQ(result["ids"].size(), 384u - 3);
}

}  // namespace
}  // namespace moewe
