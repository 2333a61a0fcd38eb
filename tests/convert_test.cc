// convert as a user runs it: exit codes, what is printed, limits, interruptions.
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "golden.h"
#include "paths.h"
#include "program.h"

namespace moewe {
namespace {

namespace fs = std::filesystem;

class ConvertProgramTest : public testing::Test {
 protected:
  std::string At(const std::string& name) const { return folder_.At(name); }
  bool FolderIsEmpty() const { return fs::is_empty(folder_.At("")); }

  // What `moewe ARGUMENTS` says on standard error, after `shell`, e.g. a limit.
  static Outcome Errors(const std::string& arguments, const std::string& shell = "") {
    return RunShell(shell + " $MOEWE " + arguments + " 2>&1 >/dev/null");
  }

  // Starts a conversion of the demo model, sends `signal` after a while and gives its wait status.
  int Signalled(int signal, std::chrono::milliseconds after, bool resume) const {
    std::string program = paths::Program();
    std::string dst = At("out.cmf");
    std::string demo = demo_;
    std::string verb = "convert", quant = "--quant", q4tp = "q4tp", flag = "--resume";
    std::vector<char*> arguments = {program.data(), verb.data(),  demo.data(),
                                    dst.data(),     quant.data(), q4tp.data()};
    if (resume) arguments.push_back(flag.data());
    arguments.push_back(nullptr);
    pid_t child = 0;
    EXPECT_EQ(posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments.data(), environ), 0);
    std::this_thread::sleep_for(after);
    kill(child, signal);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return status;
  }

  ScratchFolder folder_;
  std::string demo_ = paths::DemoModel();
  std::string dense_ = golden::Path("cmf/files/dense_qwen2_f32.cmf").string();
};

TEST_F(ConvertProgramTest, TheDestinationsNameSaysWhatItBecomes) {
  EXPECT_EQ(RunMoewe("convert " + dense_ + " " + At("a.gguf")).code, 2);
  EXPECT_EQ(RunMoewe("convert " + dense_ + " " + At("a")).code, 2);
  EXPECT_EQ(RunMoewe("convert " + dense_ + " " + At("a.cmf") + " --to gguf").code, 2);
  EXPECT_TRUE(FolderIsEmpty());
  EXPECT_EQ(RunMoewe("convert " + dense_ + " " + At("a") + " --to cmf --quant q8").code, 0);
  EXPECT_EQ(RunMoewe("verify " + At("a")).code, 0);
}

TEST_F(ConvertProgramTest, ErrorsAreNamedAndNothingIsLeft) {
  const Outcome rule =
      RunMoewe("convert --json --tensor 'lm_haed=q8' " + dense_ + " " + At("a.cmf"));
  EXPECT_EQ(rule.code, 2);
  EXPECT_EQ(rule.json()["error"]["code"], "UnknownName");
  EXPECT_EQ(RunMoewe("convert --json " + At("none") + " " + At("a.cmf")).json()["error"]["code"],
            "NotFound");
  EXPECT_TRUE(FolderIsEmpty());
  fs::copy_file(dense_, At("a.cmf"));
  const Outcome same = RunMoewe("convert --json " + At("a.cmf") + " " + At("a.cmf"));
  EXPECT_EQ(same.code, 2);
  EXPECT_EQ(same.json()["error"]["code"], "Usage");
  EXPECT_EQ(golden::ReadBytes(At("a.cmf")), golden::ReadBytes(dense_));
}

TEST_F(ConvertProgramTest, AFileSizeLimitIsAnErrorWithTheNeededSize) {
  std::ofstream(At("a.cmf")) << "old";
  const Outcome limited =
      Errors("convert " + demo_ + " " + At("a.cmf") + " --quant q8", "ulimit -f 1000;");
  EXPECT_EQ(limited.code, 1);
  EXPECT_NE(limited.out.find("NoSpace: the file takes "), std::string::npos) << limited.out;
  EXPECT_EQ(golden::ReadBytes(At("a.cmf")).size(), 3u);
  EXPECT_FALSE(fs::exists(At("a.cmf.partial")));
}

TEST_F(ConvertProgramTest, QuietSaysNothingAndJsonIsOneObject) {
  EXPECT_EQ(Errors("convert --quiet " + dense_ + " " + At("a.cmf")).out, "");
  EXPECT_NE(Errors("convert " + dense_ + " " + At("a.cmf")).out.find("wrote "), std::string::npos);
  const Outcome json = RunMoewe("convert --json --quant q8 " + dense_ + " " + At("b.cmf"));
  EXPECT_EQ(json.json()["bytes"], fs::file_size(At("b.cmf")));
  EXPECT_TRUE(json.json()["warnings"].empty());
}

TEST_F(ConvertProgramTest, ADryRunListsAndWritesNothing) {
  const Outcome plan =
      RunMoewe("convert --json --dry-run --quant q4t " + demo_ + " " + At("a.cmf"));
  ASSERT_EQ(plan.code, 0);
  EXPECT_EQ(plan.json()["tensors"].size(), 422u);
  EXPECT_EQ(plan.json()["tensors"][0]["name"], "model.embed_tokens.weight");
  EXPECT_EQ(plan.json()["tensors"][0]["from"], "bf16");
  EXPECT_EQ(plan.json()["tensors"][0]["to"], "q4_tiled");
  EXPECT_TRUE(FolderIsEmpty());
  ASSERT_EQ(RunMoewe("convert --quant q4t " + demo_ + " " + At("a.cmf")).code, 0);
  const auto file = RunMoewe("info --json --tensors " + At("a.cmf")).json();
  for (size_t i = 0; i < 422; ++i) {
    EXPECT_EQ(file["tensors"][i]["dtype"], plan.json()["tensors"][i]["to"]);
    EXPECT_EQ(file["tensors"][i]["nbytes"], plan.json()["tensors"][i]["nbytes"]);
  }
}

TEST_F(ConvertProgramTest, RequantKeepsWhatIsNotWeights) {
  const std::string src = golden::Path("cmf/files/masks_llama_f32.cmf").string();
  EXPECT_EQ(RunMoewe("requant " + src + " " + At("a.cmf")).code, 2);
  EXPECT_EQ(RunMoewe("requant --quant q8 " + demo_ + " " + At("a.cmf")).code, 2);
  ASSERT_EQ(RunMoewe("requant --quant q8 " + src + " " + At("a.cmf")).code, 0);
  const std::string golden_q8 = golden::Path("cmf/files/masks_llama_q8row.cmf").string();
  const auto diff = RunMoewe("diff --json " + golden_q8 + " " + At("a.cmf")).json();
  EXPECT_TRUE(diff["tensors"].empty());
  EXPECT_TRUE(diff["masks"].empty());
  EXPECT_EQ(diff["tokenizer_differs"], false);
  const auto from_source = RunMoewe("diff --json " + src + " " + At("a.cmf")).json();
  ASSERT_EQ(from_source["header"].size(), 1u);
  EXPECT_EQ(from_source["header"][0]["name"], "quant_type");
  EXPECT_TRUE(from_source["masks"].empty());
  EXPECT_FALSE(from_source["tensors"].empty());
  const std::string unknown = golden::Path("cmf/files/unknown_header_fields.cmf").string();
  ASSERT_EQ(RunMoewe("requant --tensor 'lm_head=q8' " + unknown + " " + At("b.cmf")).code, 0);
  EXPECT_TRUE(RunMoewe("diff --json " + unknown + " " + At("b.cmf")).json()["header"].empty());
}

TEST_F(ConvertProgramTest, RequantKeepsSkills) {
  const std::string src = golden::Path("cmf/files/skills_2.cmf").string();
  ASSERT_EQ(RunMoewe("requant --quant q4tp " + src + " " + At("a.cmf")).code, 0);
  const auto diff = RunMoewe("diff --json " + src + " " + At("a.cmf")).json();
  EXPECT_TRUE(diff["skills"].empty());
  EXPECT_TRUE(diff["masks"].empty());
  size_t kept = 0;
  const auto info = RunMoewe("info --json --tensors " + src).json();
  for (const auto& tensor : info["tensors"]) {
    const std::string name = tensor["name"];
    if (!name.starts_with("skill.")) continue;
    ++kept;
    for (const auto& changed : diff["tensors"]) EXPECT_NE(changed["name"], name);
  }
  EXPECT_GT(kept, 0u);
  EXPECT_FALSE(diff["tensors"].empty());
  EXPECT_EQ(RunMoewe("run --ids 1,2 -n 2 --greedy --skill code " + At("a.cmf")).code, 0);
  EXPECT_EQ(RunMoewe("verify " + At("a.cmf")).code, 0);
}

TEST_F(ConvertProgramTest, CompactDropsWhatSkillGrowthLeft) {
  const std::string grown = golden::Path("cmf/files/skill_appended.cmf").string();
  ASSERT_EQ(RunMoewe("compact " + grown + " " + At("a.cmf")).code, 0);
  EXPECT_LT(fs::file_size(At("a.cmf")), fs::file_size(grown));
  EXPECT_EQ(RunMoewe("verify " + At("a.cmf")).code, 0);
  EXPECT_EQ(RunMoewe("diff --json " + grown + " " + At("a.cmf")).json()["same"], true);
  const std::string theirs = golden::Path("cmf/files/skill_appended_compacted.cmf").string();
  EXPECT_TRUE(RunMoewe("diff --json " + theirs + " " + At("a.cmf")).json()["tensors"].empty());
  EXPECT_EQ(RunMoewe("compact --quant q8 " + grown + " " + At("b.cmf")).code, 2);
}

TEST_F(ConvertProgramTest, DiffNamesWhatChanged) {
  const auto golden_file = [](const std::string& name) {
    return golden::Path("cmf/files/" + name + ".cmf").string();
  };
  const auto skills =
      RunMoewe("diff --json " + golden_file("skill_base") + " " + golden_file("applied")).json();
  EXPECT_EQ(skills["same"], false);
  EXPECT_EQ(skills["same_tensors"], 24);
  EXPECT_EQ(skills["tensors"].size(), 6u);
  EXPECT_EQ(skills["masks"].size(), 4u);
  ASSERT_EQ(skills["skills"].size(), 1u);
  EXPECT_EQ(skills["skills"][0]["name"], "gfx-html");
  EXPECT_TRUE(skills["skills"][0]["a"].is_null());
  ASSERT_EQ(RunMoewe("convert --quant bf16 " + demo_ + " " + At("a.cmf")).code, 0);
  // Vectors became f16; matrices are the same bytes under the same names.
  const auto model = RunMoewe("diff --json " + demo_ + " " + At("a.cmf")).json();
  EXPECT_GT(model["same_tensors"], 380);
  for (const auto& tensor : model["tensors"]) EXPECT_EQ(tensor["b"]["dtype"], "f16");
  EXPECT_EQ(model["tokenizer_differs"], false);
  const Outcome text =
      RunMoewe("diff " + golden_file("dense_qwen3_q8") + " " + golden_file("dense_qwen3_q4t"));
  EXPECT_NE(text.out.find("~ quant_type  \"Q8_ROW\" -> \"Q4_BLOCK\""), std::string::npos)
      << text.out;
  EXPECT_NE(text.out.find("q8_row"), std::string::npos);
  const Outcome same =
      RunMoewe("diff " + golden_file("loop_masks") + " " + golden_file("loop_masks"));
  EXPECT_NE(same.out.find("the same model"), std::string::npos);
}

TEST_F(ConvertProgramTest, ShardsAreListedAndRunByAnyName) {
  const std::string whole = golden::Path("cmf/files/unsharded_q8_2f.cmf").string();
  const Outcome made = RunMoewe("shard --json --max 60000 " + whole + " " + At("m.cmf"));
  ASSERT_EQ(made.code, 0);
  const auto files = made.json()["files"].get<std::vector<std::string>>();
  ASSERT_GE(files.size(), 2u);
  const std::string wanted = At("wanted.f32");
  ASSERT_EQ(RunMoewe("logits --ids 1,2,3 --out " + wanted + " " + whole).code, 0);
  for (const std::string& file : files) {
    EXPECT_LE(fs::file_size(file), 60000u);
    EXPECT_EQ(RunMoewe("verify " + file).code, 0);
    ASSERT_EQ(RunMoewe("logits --ids 1,2,3 --out " + At("l.f32") + " " + file).code, 0);
    EXPECT_EQ(golden::ReadBytes(At("l.f32")), golden::ReadBytes(wanted));
  }
  EXPECT_EQ(Errors("shard --max 1GB " + At("nothing") + " " + At("x.cmf")).code, 1);
  EXPECT_EQ(Errors("shard --max many " + whole + " " + At("x.cmf")).code, 2);
  EXPECT_EQ(Errors("shard --max 1GB " + demo_ + " " + At("x.cmf")).code, 2);
  EXPECT_EQ(Errors("convert --quant vbit --mean-bits 9 " + whole + " " + At("x.cmf")).code, 2);
  EXPECT_EQ(Errors("convert --quant q1s --keep 0.5 " + whole + " " + At("x.cmf")).code, 2);
  fs::remove(files.back());
  EXPECT_NE(RunMoewe("logits --ids 1 --out " + At("l.f32") + " " + files.front()).code, 0);
}

TEST_F(ConvertProgramTest, InterruptedAndKilledRunsAreContinued) {
  ASSERT_EQ(RunMoewe("convert " + demo_ + " " + At("whole.cmf") + " --quant q4tp").code, 0);
  std::ofstream(At("out.cmf")) << "old";
  bool interrupted = false;
  for (int milliseconds = 60; milliseconds < 200 && !interrupted; milliseconds += 20) {
    const int status = Signalled(SIGINT, std::chrono::milliseconds(milliseconds), false);
    // Before the handler is there, the signal itself ends the program.
    interrupted = WIFEXITED(status) && WEXITSTATUS(status) == 130;
    if (!interrupted) continue;
    EXPECT_EQ(golden::ReadBytes(At("out.cmf")).size(), 3u);
  }
  for (int milliseconds = 10; milliseconds < 100; milliseconds += 30) {
    Signalled(SIGKILL, std::chrono::milliseconds(milliseconds), true);
  }
  const Outcome last =
      Errors("convert " + demo_ + " " + At("out.cmf") + " --quant q4tp --threads 1 --resume");
  EXPECT_EQ(last.code, 0) << last.out;
  EXPECT_EQ(golden::ReadBytes(At("out.cmf")), golden::ReadBytes(At("whole.cmf")));
}

}  // namespace
}  // namespace moewe
