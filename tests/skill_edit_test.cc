// Skills added, removed, exported and applied as a user does it; files that are changed by two
// commands at once; destinations with something odd about them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "golden.h"
#include "program.h"

namespace moewe {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::string Golden(const std::string& name) { return golden::Path("cmf/files/" + name).string(); }

class SkillEditProgram : public testing::Test {
 protected:
  std::string At(const std::string& name) const { return folder_.At(name); }
  void Copy(const std::string& golden, const std::string& name) const {
    fs::copy_file(Golden(golden), At(name));
    fs::permissions(At(name), fs::perms::owner_read | fs::perms::owner_write);
  }
  static std::string Code(const Outcome& outcome) { return outcome.json()["error"]["code"]; }

  ScratchFolder folder_;
};

// The donor is the same checkpoint in another dtype, far enough from the file's to be a change.
TEST_F(SkillEditProgram, AddRunRemove) {
  Copy("dense_qwen3_q8.cmf", "m.cmf");
  std::string text;  // that fits the model's 256 positions
  for (int i = 0; i < 12; ++i) text += "word" + std::to_string(i * i) + " and so on; ";
  const std::string texts = folder_.Put("t.txt", text);
  const std::string add = "skill add " + At("m.cmf") + " --donor " + Golden("dense_qwen3_q1s.cmf") +
                          " --id one --dtype q8 --layers 0-1 --texts " + texts;
  const Outcome added = RunMoewe(add + " --eval " + texts + " --json");
  ASSERT_EQ(added.code, 0);
  EXPECT_GT(added.json()["tensors"], 3);
  const Json quality = added.json()["quality"];
  EXPECT_NE(quality["backbone"], quality["overlaid"]);
  EXPECT_EQ(quality["dataset_sha256"].get<std::string>().size(), 64u);
  EXPECT_EQ(RunMoewe("verify " + At("m.cmf")).code, 0);
  EXPECT_EQ(RunMoewe("skill list --json " + At("m.cmf")).json()["skills"][0]["quality"], quality);
  for (const auto& [skill, key] : {std::pair("one", "overlaid"), std::pair("none", "backbone")}) {
    const Outcome ppl = RunMoewe("ppl --json " + At("m.cmf") + " " + texts + " --skill " + skill);
    ASSERT_EQ(ppl.code, 0);
    EXPECT_EQ(ppl.json()["ppl"], quality[key]);
  }
  EXPECT_EQ(RunMoewe("skill route --json --ids 5,6,7 " + At("m.cmf")).json()["chosen"], "one");
  EXPECT_EQ(Code(RunMoewe(add + " --json")), "Usage");  // there already
  EXPECT_EQ(RunMoewe("skill remove " + At("m.cmf") + " two").code, 2);
  EXPECT_EQ(RunMoewe("skill remove " + At("m.cmf") + " one").code, 0);
  EXPECT_EQ(RunMoewe("skill list --json " + At("m.cmf")).json()["skills"].size(), 0u);
  EXPECT_EQ(RunMoewe("diff " + At("m.cmf") + " " + Golden("dense_qwen3_q8.cmf")).code, 0);
  EXPECT_EQ(RunMoewe("verify " + At("m.cmf")).code, 0);
}

TEST_F(SkillEditProgram, ExportAndApply) {
  const std::string base = Golden("skill_base.cmf");
  ASSERT_EQ(RunMoewe("skill export " + Golden("specialist.cmf") + " " + At("gfx.skill.cmf") +
                     " --base " + base)
                .code,
            0);
  const Outcome list = RunMoewe("skill list --json " + At("gfx.skill.cmf"));
  EXPECT_EQ(list.json()["skills"][0]["id"], "gfx");
  EXPECT_EQ(RunMoewe("verify " + At("gfx.skill.cmf") + " --base " + base).code, 0);
  EXPECT_EQ(RunMoewe("verify " + At("gfx.skill.cmf") + " --base " + Golden("specialist.cmf")).code,
            3);
  EXPECT_EQ(RunMoewe("run --ids 1,2 -n 1 " + At("gfx.skill.cmf")).code, 3);
  const std::string apply = "skill apply --json ";
  const std::string skill = " " + At("gfx.skill.cmf") + " " + At("out.cmf");
  ASSERT_EQ(RunMoewe(apply + base + skill).code, 0);
  const Json tensors =
      RunMoewe("diff --json " + At("out.cmf") + " " + Golden("specialist.cmf")).json()["tensors"];
  EXPECT_EQ(tensors, Json::array());
  const Outcome other = RunMoewe(apply + Golden("specialist.cmf") + skill);
  EXPECT_EQ(other.code, 3);
  EXPECT_EQ(Code(other), "Parse");
  EXPECT_EQ(RunMoewe(apply + Golden("specialist.cmf") + skill + " --force").code, 0);
  EXPECT_EQ(RunMoewe(apply + base + " " + base + " " + At("out.cmf")).code, 3);  // no skill file
}

// A skill that a set of shards spreads is not taken out in place, and the way that the error names
// takes it out.
TEST_F(SkillEditProgram, ASkillInSeveralShards) {
  const std::string whole = Golden("skills_2.cmf");
  const Outcome made = RunMoewe("shard --json --max 150000 " + whole + " " + At("m.cmf"));
  ASSERT_EQ(made.code, 0);
  const auto files = made.json()["files"].get<std::vector<std::string>>();
  ASSERT_GE(files.size(), 2u);
  const std::vector<uint8_t> before = golden::ReadBytes(files[0]);
  const Outcome refused = RunMoewe("skill remove --json " + files[1] + " prose");
  EXPECT_EQ(Code(refused), "Unsupported");
  for (const char* word : {"'prose'", "moewe compact", "moewe shard"}) {
    EXPECT_NE(refused.out.find(word), std::string::npos) << word;
  }
  EXPECT_EQ(golden::ReadBytes(files[0]), before);
  ASSERT_EQ(RunMoewe("compact " + files[0] + " " + At("one.cmf")).code, 0);
  ASSERT_EQ(RunMoewe("skill remove " + At("one.cmf") + " prose").code, 0);
  ASSERT_EQ(RunMoewe("shard --max 150000 " + At("one.cmf") + " " + At("n.cmf")).code, 0);
  const Json diff = RunMoewe("diff --json " + At("one.cmf") + " " + whole).json();
  ASSERT_EQ(diff["skills"].size(), 1u);
  EXPECT_EQ(diff["skills"][0]["name"], "prose");
}

TEST_F(SkillEditProgram, TwoEditorsLoseNothing) {
  Copy("masks_llama_q8row.cmf", "m.cmf");
  folder_.Put("d.json", R"({"layers": {"dead": [1]}})");
  const std::string add =
      "$MOEWE mask add --quiet " + At("m.cmf") + " " + At("d.json") + " --name ";
  ASSERT_EQ(RunShell("for i in 1 2 3 4 5 6; do (" + add + "m$i 2>/dev/null) & done; wait").code, 0);
  const Json masks = RunMoewe("mask list --json " + At("m.cmf")).json()["masks"];
  EXPECT_EQ(masks.size(), 4u + 6u);
  EXPECT_EQ(RunMoewe("verify " + At("m.cmf")).code, 0);
}

TEST_F(SkillEditProgram, DestinationsThatAreNoPlainFile) {
  const std::string source = Golden("mtp_tiny.cmf") + " ";
  const Outcome dash = RunShell("cd " + folder_.At(".") + " && $MOEWE convert --json --to cmf " +
                                source + "- 2>/dev/null");
  EXPECT_EQ(dash.code, 2);
  EXPECT_FALSE(fs::exists(At("-")));
  fs::create_directory(At("data"));
  fs::create_symlink("data/m.cmf", At("link.cmf"));
  EXPECT_EQ(RunMoewe("compact " + source + At("link.cmf")).code, 0);
  EXPECT_TRUE(fs::is_symlink(At("link.cmf")));
  EXPECT_EQ(RunMoewe("verify " + At("data/m.cmf")).code, 0);
  folder_.Put("out.cmf.partial", "a letter");
  EXPECT_EQ(RunMoewe("compact " + source + At("out.cmf")).code, 2);
  EXPECT_EQ(golden::ReadBytes(At("out.cmf.partial")).size(), 8u);
}

}  // namespace
}  // namespace moewe
