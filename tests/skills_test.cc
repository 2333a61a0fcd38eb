// Skills as a user meets them: skill list, route, explain; --skill of the verbs that run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "golden.h"
#include "program.h"

namespace moewe {
namespace {

using Json = nlohmann::json;

std::string Golden(const std::string& name) { return golden::Path("cmf/files/" + name).string(); }

std::string List(const Json& ids) {
  std::string list;
  for (const Json& id : ids) list += (list.empty() ? "" : ",") + id.dump();
  return list;
}

// The --skill of a golden run.
std::string SkillFlag(const Json& run) {
  if (!run.contains("blend")) {
    return " --skill " + (run["skill"].is_null() ? "none" : run["skill"].get<std::string>());
  }
  std::string flag;
  for (const Json& part : run["blend"]) {
    flag += (flag.empty() ? " --skill " : ",") + part[0].get<std::string>() + "=" + part[1].dump();
  }
  return flag;
}

class SkillsProgram : public testing::TestWithParam<const char*> {
 protected:
  ScratchFolder folder_;
};

TEST_P(SkillsProgram, RunsAsTheGoldensSay) {
  const Json expected = golden::ReadJson(Golden(std::string(GetParam()) + ".expected.json"));
  const std::string file = Golden(expected["file"]);
  for (const Json& run : expected["runs"]) {
    const std::string flags = " --activations f32 --task " +
                              (run["task"].is_null() ? "none" : run["task"].get<std::string>()) +
                              SkillFlag(run) + " ";
    SCOPED_TRACE(flags);
    const std::vector<float> golden = golden::ReadF32(Golden(run["logits"]));
    size_t at = 0;
    for (size_t p = 0; p < run["prompts"].size(); ++p) {
      const std::string ids = " --ids " + List(run["prompts"][p]);
      const std::string out = folder_.At("logits");
      ASSERT_EQ(RunMoewe("logits --all --out " + out + flags + ids + " " + file).code, 0);
      for (const float logit : golden::ReadF32(out)) {
        ASSERT_LT(at, golden.size());
        EXPECT_NEAR(logit, golden[at++], 2e-4);
      }
      const Outcome answer =
          RunMoewe("run --json --greedy --ignore-eos -n 8" + flags + ids + " " + file);
      ASSERT_EQ(answer.code, 0);
      EXPECT_EQ(answer.json()["ids"], run["greedy"][p]);
    }
    EXPECT_EQ(at, golden.size());
  }
}

INSTANTIATE_TEST_SUITE_P(All, SkillsProgram, testing::Values("skills_2", "skill_sparse"),
                         [](const auto& test) { return std::string(test.param); });

TEST(SkillVerb, RoutesAsTheGoldensSay) {
  for (const char* name : {"skills_1", "skills_2"}) {
    const Json expected = golden::ReadJson(Golden(std::string(name) + ".expected.json"));
    const std::string file = Golden(std::string(name) + ".cmf");
    for (const Json& prompt : expected["routing"]) {
      const std::string ids = " --ids " + List(prompt["ids"]);
      const Outcome outcome = RunMoewe("skill route --json " + file + ids);
      ASSERT_EQ(outcome.code, 0);
      const Json route = outcome.json();
      const Json& golden = prompt["golden_E"];
      EXPECT_EQ(route["chosen"], golden[0]["id"]);
      ASSERT_EQ(route["energies"].size(), golden.size());
      for (size_t i = 0; i < golden.size(); ++i) {
        EXPECT_EQ(route["energies"][i]["id"], golden[i]["id"]);
        EXPECT_NEAR(route["energies"][i]["E"].get<double>(), golden[i]["E"].get<double>(), 1e-5);
        EXPECT_TRUE(route["energies"][i]["phi_layer"].is_number());
      }
      // What auto runs is what route names, whatever the activations.
      const std::string run = "run --json --greedy -n 4 " + file + ids;
      const Json chosen = RunMoewe(run + " --skill auto").json();
      EXPECT_EQ(chosen["skill"]["chosen"], golden[0]["id"]);
      EXPECT_EQ(chosen["skill"]["energies"], route["energies"]);
      EXPECT_EQ(chosen["ids"],
                RunMoewe(run + " --skill " + golden[0]["id"].get<std::string>()).json()["ids"]);
    }
  }
}

TEST(SkillVerb, AutoBlendIsTheBlendOfTheTwoNearest) {
  const std::string file = Golden("skills_2.cmf");
  const std::string prompt = " --ids 110,47,73,178,26 ";
  const Json route = RunMoewe("skill route --json --skill-blend 0.4 " + file + prompt).json();
  ASSERT_EQ(route["blend"].size(), 2u);
  const double first = std::exp(-route["energies"][0]["E"].get<double>() / 0.4);
  const double second = std::exp(-route["energies"][1]["E"].get<double>() / 0.4);
  EXPECT_EQ(route["blend"][0]["id"], route["chosen"]);
  EXPECT_NEAR(route["blend"][0]["weight"].get<double>(), first / (first + second), 1e-9);
  const std::string named = " --skill " + route["blend"][0]["id"].get<std::string>() + "=" +
                            route["blend"][0]["weight"].dump() + "," +
                            route["blend"][1]["id"].get<std::string>() + "=" +
                            route["blend"][1]["weight"].dump();
  const std::string run = "run --json --greedy --activations f32 -n 8 " + file + prompt;
  EXPECT_EQ(RunMoewe(run + "--skill auto --skill-blend 0.4").json()["ids"],
            RunMoewe(run + named).json()["ids"]);
  EXPECT_EQ(RunMoewe(run + "--skill code --skill-blend 0.4").code, 2);
  EXPECT_EQ(RunMoewe(run + "--skill auto --skill-blend 0").code, 2);
  ScratchFolder folder;
  const std::string logits = "logits --all --activations f32 " + file + prompt + "--out ";
  EXPECT_EQ(RunMoewe(logits + folder.At("a") + " --skill auto").code, 0);
  EXPECT_EQ(
      RunMoewe(logits + folder.At("b") + " --skill " + route["chosen"].get<std::string>()).code, 0);
  EXPECT_EQ(golden::ReadBytes(folder.At("a")), golden::ReadBytes(folder.At("b")));
}

TEST(SkillVerb, AConversationIsRoutedByWhatItsTokensAre) {
  const std::string file = Golden("skills_2.cmf");
  const auto chat = [&](const std::string& lines, const std::string& flags) {
    const Outcome outcome = RunShell("printf '" + lines + "' | $MOEWE chat --json --greedy -n 3 " +
                                     flags + " " + file + " 2>/dev/null");
    EXPECT_EQ(outcome.code, 0);
    return outcome.json()["answers"];
  };
  const Json both = chat("one\\ntwo\\n", "--skill auto");
  ASSERT_EQ(both.size(), 2u);
  for (const Json& answer : both) {
    EXPECT_EQ(answer["skill"]["energies"].size(), 2u);
    EXPECT_EQ(answer["skill"]["chosen"], answer["skill"]["energies"][0]["id"]);
  }
  EXPECT_EQ(chat("one\\n", "--skill auto")[0]["ids"], both[0]["ids"]);
}

TEST(SkillVerb, ListAndExplain) {
  const std::string file = Golden("skills_2.cmf");
  const Json list = RunMoewe("skill list --json " + file).json();
  ASSERT_EQ(list["skills"].size(), 2u);
  EXPECT_EQ(list["standalone"], false);
  EXPECT_EQ(list["skills"][0]["id"], "code");
  EXPECT_EQ(list["skills"][0]["name"], "Code helper");
  EXPECT_EQ(list["skills"][0]["tensors"], 6);
  EXPECT_EQ(list["skills"][0]["quality"]["overlaid"], 1028.987);
  EXPECT_EQ(list["skills"][1]["selection"],
            Json::parse(R"({"metric": "mse", "phi_layer": 1, "rank": 3})"));
  EXPECT_EQ(list["skills"][1]["quality"], nullptr);
  const std::string text = RunMoewe("skill list " + file).out;
  EXPECT_NE(text.find("Code helper"), std::string::npos);
  EXPECT_NE(text.find("not measured"), std::string::npos);
  EXPECT_EQ(RunMoewe("skill list " + Golden("skill_base.cmf")).out, "no skills\n");

  const Json standalone = RunMoewe("skill list --json " + Golden("gfx.skill.cmf")).json();
  EXPECT_EQ(standalone["standalone"], true);
  EXPECT_EQ(standalone["skills"][0]["base_dir_hash"], "246fe80d8a6e1b09");
  EXPECT_EQ(standalone["skills"][0]["tensors"], 6);

  const Json explained = RunMoewe("skill explain --json --ids 203 " + file).json();
  EXPECT_EQ(explained["chosen"], "code");
  EXPECT_EQ(explained["skills"][0]["id"], "code");
  ASSERT_EQ(explained["skills"][0]["overlays"].size(), 6u);
  EXPECT_EQ(explained["skills"][1]["overlays"][0],
            Json::parse(R"({"name": "model.layers.0.mlp.gate_proj.weight", "dtype": "q4_tiled",
                            "nbytes": 3456, "backbone": {"dtype": "q8_row", "nbytes": 6336}})"));
  const std::string shown = RunMoewe("skill explain --ids 203 " + file).out;
  EXPECT_LT(shown.find("code"), shown.find("prose"));
  EXPECT_NE(shown.find("chosen"), std::string::npos);
  EXPECT_NE(RunMoewe("skill explain " + Golden("skill_sparse.cmf")).out.find("mask      lean"),
            std::string::npos);
}

TEST(SkillVerb, FaultsAreNamed) {
  const std::string file = Golden("skills_2.cmf");
  const std::string ids = " --ids 110,47 ";
  const Outcome unknown = RunMoewe("run --json -n 1 --skill nope" + ids + file);
  EXPECT_EQ(unknown.code, 2);
  EXPECT_EQ(unknown.json()["error"]["code"], "UnknownName");
  EXPECT_NE(unknown.json()["error"]["message"].get<std::string>().find("'code', 'prose'"),
            std::string::npos);
  EXPECT_EQ(RunMoewe("plan --skill nope " + file).code, 2);
  EXPECT_EQ(RunMoewe("plan --task nope " + file).code, 2);
  for (const char* verb : {"run -n 1", "plan", "logits --out /dev/null"}) {
    const std::string with = std::string(verb) == "plan" ? " " : ids;
    const Outcome alone = RunMoewe(std::string(verb) + " --json" + with + Golden("gfx.skill.cmf"));
    EXPECT_EQ(alone.code, 3) << verb;
    EXPECT_NE(alone.json()["error"]["message"].get<std::string>().find("moewe skill apply"),
              std::string::npos);
  }
  EXPECT_EQ(RunMoewe("run -n 1 --skill auto" + ids + Golden("skill_base.cmf")).code, 3);
  EXPECT_EQ(RunMoewe("ppl --skill auto " + file + " /dev/null").code, 2);
  EXPECT_EQ(RunMoewe("bench --skill auto " + file).code, 2);
  EXPECT_EQ(RunMoewe("skill").code, 2);
  EXPECT_EQ(RunMoewe("skill route " + file).code, 2);
  EXPECT_EQ(RunMoewe("skill list " + paths::SourceDir() + "/models/demo").code, 3);
}

TEST(SkillVerb, PlansCountBlendsAndRouting) {
  const std::string file = Golden("skills_2.cmf");
  const auto plan = [&](const std::string& flags) {
    return RunMoewe("plan --json --memory 1GB " + flags + " " + file).json();
  };
  const Json plain = plan("");
  EXPECT_EQ(plain["blended"], 0);
  EXPECT_EQ(plain["parts"]["skills"], 0);
  const Json blend = plan("--skill code=0.5,prose=0.5");
  EXPECT_GT(blend["blended"], 0);
  EXPECT_GT(blend["total"], plain["total"]);
  EXPECT_LT(plan("--skill prose")["total"], plain["total"]);
  EXPECT_GT(plan("--skill auto")["parts"]["skills"], 0);
  EXPECT_GT(plan("--skill auto --skill-blend 0.4")["parts"]["skills"],
            plan("--skill auto")["parts"]["skills"]);
  // What plan calls enough is enough, and a byte less is not.
  const std::string run = "run -n 1 --greedy --ids 110,47 " + file;
  for (const char* flags : {" --skill code=0.5,prose=0.5", " --skill auto --skill-blend 0.4"}) {
    const uint64_t least =
        RunMoewe("plan --json --memory min " + std::string(flags) + " " + file).json()["total"];
    EXPECT_EQ(RunMoewe(run + flags + " --memory " + std::to_string(least)).code, 0) << flags;
    EXPECT_EQ(RunMoewe(run + flags + " --memory " + std::to_string(least - 1)).code, 4) << flags;
  }
}

}  // namespace
}  // namespace moewe
