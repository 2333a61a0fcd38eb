// Task masks and expert statistics as a user handles them: mask, experts, run --task.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "golden.h"
#include "program.h"

namespace moewe {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::string Golden(const std::string& name) { return golden::Path("cmf/files/" + name).string(); }

class MasksTest : public testing::Test {
 protected:
  MasksTest() { fs::copy_file(Golden("masks_llama_f32.cmf"), At("m.cmf")); }

  std::string At(const std::string& name) const { return folder_.At(name); }
  std::string Put(const std::string& name, const std::string& text) const {
    return folder_.Put(name, text);
  }
  Json Logits(const std::string& file, const std::string& flags) const {
    const Outcome done = RunMoewe("run --json --greedy -n 8 --activations f32 --ids 110,47,73 " +
                                  flags + " " + file);
    EXPECT_EQ(done.code, 0) << flags;
    return done.code == 0 ? done.json()["ids"] : Json();
  }
  ScratchFolder folder_;
};

TEST_F(MasksTest, ListAndShowAgreeWithTheDescriptions) {
  for (const char* name : {"masks_llama_f32", "loop_masks", "moe_qwen2_q8_expertmask"}) {
    const Json expected = golden::ReadJson(Golden(std::string(name) + ".expected.json"));
    const std::string file = Golden(std::string(name) + ".cmf");
    const Json list = RunMoewe("mask list --json " + file).json();
    EXPECT_EQ(list["default_task"], expected["default_task"]);
    ASSERT_EQ(list["masks"].size(), expected["masks"].size());
    for (size_t i = 0; i < list["masks"].size(); ++i) {
      const Json& mask = expected["masks"][i];
      const Json shown =
          RunMoewe("mask show --json " + file + " " + mask["name"].get<std::string>()).json();
      for (const char* key : {"task_id", "name", "description", "quality", "priority", "parent",
                              "layer_gates", "ffn_popcount", "head_popcount", "expert_popcount",
                              "ffn_masks_hex", "head_masks_hex", "expert_masks_hex"}) {
        EXPECT_EQ(shown[key], mask[key]) << name << " " << key;
        if (!std::string(key).ends_with("_hex")) {
          EXPECT_EQ(list["masks"][i][key], mask[key]);
        }
      }
    }
    EXPECT_EQ(RunMoewe("mask list " + file).code, 0);
    EXPECT_NE(RunMoewe("mask show " + file + " " + expected["masks"][1]["name"].get<std::string>())
                  .out.find("layer 0"),
              std::string::npos);
  }
  EXPECT_EQ(RunMoewe("mask show " + At("m.cmf") + " nobody").code, 2);
  EXPECT_EQ(RunMoewe("mask").code, 2);
  EXPECT_EQ(RunMoewe("mask list " + paths::SourceDir() + "/models/demo").code, 3);
}

// What a file calls its parts may be anything; it does not reach the terminal.
TEST_F(MasksTest, NamesOfOthersAreEscaped) {
  const std::vector<uint8_t> bytes = golden::ReadBytes(Golden("masks_llama_f32.cmf"));
  std::string text(bytes.begin(), bytes.end());
  const auto replace = [&](const std::string& from, const std::string& to) {
    ASSERT_EQ(from.size(), to.size());
    size_t count = 0;
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; ++count) {
      text.replace(at, from.size(), to);
    }
    EXPECT_GT(count, 0u) << from;
  };
  replace("\"ffn_only\"", R"("\u001b[m")");
  replace("model.norm.weight", "model.norm.\x1b[m\n\xC2\x9B");
  // Their hashes: 0 is none.
  const Json hashes = golden::ReadJson(Golden("masks_llama_f32.expected.json"))["header"];
  replace(hashes["section_hashes"]["masks"], std::string(16, '0'));
  std::fill_n(text.begin() + 0x70, 16, '\0');  // header's and directory's
  const std::string file = Put("odd.cmf", text);
  const std::string name = "$(printf '\\033[m')";
  for (const std::string& verb :
       {"mask list " + file, "mask show " + file + " " + name, "mask show " + file + " nobody",
        "info " + file, "info --tensors " + file, "verify " + file,
        "diff " + file + " " + Golden("masks_llama_f32.cmf"), "run --ids 1,2 " + file,
        "run --ids 1,2 -n 2 --task nobody " + file, "convert --dry-run " + file + " x.cmf",
        "run --ids 1,2 -n 2 --task " + name + " " + Golden("masks_llama_f32.cmf")}) {
    const Outcome done = RunShell("$MOEWE " + verb + " 2>&1");
    EXPECT_TRUE(
        std::none_of(done.out.begin(), done.out.end(),
                     [](char c) { return c != '\n' && static_cast<unsigned char>(c) < 0x20; }))
        << verb << "\n"
        << done.out;
    EXPECT_EQ(done.out.find("\xC2\x9B"), std::string::npos) << verb;
  }
  EXPECT_NE(RunMoewe("mask list " + file).out.find("1 \\x1b[m"), std::string::npos);
  EXPECT_EQ(RunMoewe("mask show --json " + file + " " + name).json()["name"], "\x1b[m");
  EXPECT_NE(RunMoewe("info --tensors " + file).out.find("model.norm.\\x1b[m\\n\\u009b"),
            std::string::npos);
}

// A cut leaves fewer experts than the header's count says.
TEST_F(MasksTest, MasksOfCutFilesCountWhatIsThere) {
  const std::string source = Golden("moe_qwen3_q4tp.cmf");
  const std::string stats = " --stats " + Golden("moe_qwen3_q4tp.moe_stats.json");
  ASSERT_EQ(
      RunMoewe("experts defrag " + source + " " + At("cut.cmf") + stats + " --cover 0.85").code, 0);
  EXPECT_NE(RunMoewe("info " + At("cut.cmf")).out.find("cut: 5 to 6 of 8 experts left in 3 layers"),
            std::string::npos);
  EXPECT_EQ(RunMoewe("info " + source).out.find("cut:"), std::string::npos);
  EXPECT_NE(RunMoewe("info " + Golden("defrag_q4t.cmf"))
                .out.find("cut: 52 to 80 of 96 neurons left in 3"),
            std::string::npos);
  const std::string description = Put("d.json", R"({"experts": {"0": [0, 2], "2": [4]}})");
  ASSERT_EQ(RunMoewe("mask add " + At("cut.cmf") + " " + description + " --name few").code, 0);
  const std::string shown = RunMoewe("mask show " + At("cut.cmf") + " few").out;
  for (const char* line : {"2 of 6 experts\n", "6 of 6 experts\n", "1 of 5 experts\n"}) {
    EXPECT_NE(shown.find(line), std::string::npos) << line << shown;
  }
  EXPECT_NE(RunMoewe("mask list " + At("cut.cmf")).out.find(", 9 experts,"), std::string::npos);
}

TEST_F(MasksTest, AddedMasksRunAndGoAgain) {
  const std::string file = At("m.cmf");
  // A mask of the golden file, described anew, answers alike.
  const Json masks = golden::ReadJson(Golden("masks_llama_f32.expected.json"))["masks"];
  Json json = {{"ffn", masks[1]["ffn_masks_hex"]}, {"heads", masks[1]["head_masks_hex"]}};
  const std::string description = Put("d.json", json.dump());
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
  ASSERT_EQ(RunMoewe("mask add " + file + " " + description + " --name again").code, 0);
  EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(Logits(file, "--task again"), Logits(file, "--task ffn_only"));
  EXPECT_NE(Logits(file, "--task again"), Logits(file, "--task none"));
  EXPECT_EQ(RunMoewe("verify " + file).code, 0);
  // Twice under one name; a broken description; the file stays as it is.
  const std::vector<uint8_t> with_mask = golden::ReadBytes(file);
  EXPECT_EQ(RunMoewe("mask add " + file + " " + description + " --name again").code, 2);
  EXPECT_EQ(RunMoewe("mask add " + file + " " + Put("b.json", "{") + " --name b").code, 3);
  EXPECT_EQ(RunMoewe("mask add " + file + " --ffn " + description + " --name b").code, 3);
  EXPECT_EQ(RunMoewe("mask add " + file + " " + At("missing") + " --name b").code, 1);
  EXPECT_EQ(golden::ReadBytes(file), with_mask);
  EXPECT_EQ(RunMoewe("mask remove " + file + " again -o " + At("o.cmf")).code, 0);
  EXPECT_EQ(golden::ReadBytes(file), with_mask);
  EXPECT_EQ(RunMoewe("mask remove " + file + " again").code, 0);
  EXPECT_EQ(golden::ReadBytes(file), golden::ReadBytes(At("o.cmf")));
  EXPECT_EQ(Logits(file, "--task ffn_only"),
            Logits(Golden("masks_llama_f32.cmf"), "--task ffn_only"));
}

// What is active without being asked for, and what nobody measured, is told in a line each.
TEST_F(MasksTest, RunsSayWhichMaskIsActive) {
  const auto told = [&](const std::string& flags) {
    return RunShell("$MOEWE run --greedy -n 1 --ids 1,2 " + flags + " 2>&1 >/dev/null").out;
  };
  const std::string file = At("m.cmf");
  const auto lines = [](const std::string& text) {
    return std::count(text.begin(), text.end(), '\n');
  };
  const std::string by_default = told(file);
  EXPECT_NE(by_default.find("task 'general' is active, the file's default"), std::string::npos);
  EXPECT_EQ(lines(by_default), 1);
  const std::string unmeasured = told("--task heads " + file);
  EXPECT_NE(unmeasured.find("warning: the quality of task mask 'heads' was not measured"),
            std::string::npos);
  EXPECT_EQ(lines(unmeasured), 1);
  EXPECT_EQ(told("--task none " + file), "");
  EXPECT_EQ(told("--quiet " + file), "");
  const std::string unknown = told("--task nobody " + file);
  for (const char* name : {"'general'", "'ffn_only'", "'heads'", "'gated'"}) {
    EXPECT_NE(unknown.find(name), std::string::npos) << unknown;
  }
}

TEST_F(MasksTest, ALinkToAFileStaysALink) {
  fs::create_symlink("m.cmf", At("link.cmf"));
  EXPECT_EQ(RunMoewe("mask add " + At("link.cmf") + " --name whole --default").code, 0);
  EXPECT_TRUE(fs::is_symlink(At("link.cmf")));
  EXPECT_EQ(RunMoewe("mask list --json " + At("m.cmf")).json()["default_task"], "whole");
  EXPECT_EQ(Logits(At("m.cmf"), ""), Logits(At("m.cmf"), "--task none"));
}

TEST_F(MasksTest, ShardsKeepTheirMasksInTheFirst) {
  for (const char* no : {"1", "2", "3"}) {
    const std::string name = std::string("sharded-0000") + no + "-of-00003.cmf";
    fs::copy_file(Golden(name), At(name));
  }
  const std::string second = At("sharded-00002-of-00003.cmf");
  const std::vector<uint8_t> before = golden::ReadBytes(second);
  EXPECT_EQ(RunMoewe("mask add " + second + " --name m -o " + At("o.cmf")).code, 2);
  const std::string description = Put("d.json", R"({"ffn": {"0": [1]}})");
  EXPECT_EQ(RunMoewe("mask add " + second + " " + description + " --name m").code, 0);
  EXPECT_EQ(golden::ReadBytes(second), before);
  EXPECT_NE(Logits(second, "--task m"), Logits(second, "--task none"));
}

TEST_F(MasksTest, ExpertStatisticsAddUpAndMakeMasks) {
  const std::string demo = paths::SourceDir() + "/models/demo";
  const std::string one = Put("one.txt", "Once upon a time there was a small boat.");
  const std::string two = Put("two.txt", "int main() { return 0; }\n");
  const auto stats = [&](const std::string& rest) {
    const Outcome done = RunMoewe("experts stats " + demo + " " + rest + " --out -");
    EXPECT_EQ(done.code, 0);
    return Json::parse(done.out);
  };
  const Json first = stats(one);
  const Json both = stats(one + " " + two);
  EXPECT_EQ(both, stats(one + " " + two + " --chunk 3 --threads 1"));
  Put("first.json", first.dump());
  EXPECT_EQ(both, stats(two + " --add " + At("first.json")));
  EXPECT_EQ(
      RunMoewe("experts stats " + Golden("dense_qwen2_f32.cmf") + " " + one + " --out -").code, 3);

  // The reference's statistics give the reference's masks.
  for (const std::string model : {"moe_qwen2_q8", "moe_qwen3_q4tp"}) {
    for (const auto& [cover, task] : {std::pair{"0.6", "narrow"}, std::pair{"0.85", "wide"}}) {
      const std::string out = At("masked.cmf");
      ASSERT_EQ(
          RunMoewe("experts mask " + Golden(model + ".cmf") + " " + out + " --stats " +
                   Golden(model + ".moe_stats.json") + " --cover " + cover + " --name " + task)
              .code,
          0);
      const Json made = RunMoewe("mask show --json " + out + " " + task).json();
      const Json expected = golden::ReadJson(Golden(model + "_expertmask.expected.json"));
      for (const Json& mask : expected["masks"]) {
        if (mask["name"] != task) continue;
        EXPECT_EQ(made["expert_masks_hex"], mask["expert_masks_hex"]) << model << " " << task;
        EXPECT_NEAR(made["sparsity"].get<double>(), mask["sparsity"].get<double>(), 1e-6);
      }
      EXPECT_EQ(RunMoewe("verify " + out).code, 0);
    }
  }
  const std::string wrong = Put("wrong.json", R"({"0": [1, 2]})");
  EXPECT_EQ(RunMoewe("experts mask " + Golden("moe_qwen2_q8.cmf") + " " + At("x.cmf") +
                     " --stats " + wrong + " --cover 0.5 --name x")
                .code,
            3);
  EXPECT_EQ(RunMoewe("experts mask " + Golden("moe_qwen2_q8.cmf") + " " + At("x.cmf") +
                     " --stats " + Golden("moe_qwen2_q8.moe_stats.json") + " --cover 1.5 --name x")
                .code,
            2);
  EXPECT_FALSE(fs::exists(At("x.cmf")));
  // Counts that count nothing, and of another model.
  const std::string nothing = Put("nothing.json", "{}");
  EXPECT_EQ(RunMoewe("experts mask " + Golden("moe_qwen2_q8.cmf") + " " + At("x.cmf") +
                     " --stats " + nothing + " --cover 0.5 --name x")
                .code,
            3);
  const Outcome other = RunMoewe("experts stats " + demo + " " + one + " --json --out - --add " +
                                 Golden("moe_qwen3_q4tp.moe_stats.json"));
  EXPECT_EQ(other.code, 3);
  EXPECT_EQ(other.json()["error"]["code"], "Parse");
}

TEST_F(MasksTest, ExpertsAreCutOnceAndAgain) {
  const std::string source = Golden("moe_qwen3_q4tp.cmf");
  const Outcome done =
      RunMoewe("experts defrag --json " + source + " " + At("cut.cmf") + " --stats " +
               Golden("moe_qwen3_q4tp.moe_stats.json") + " --cover 0.85");
  ASSERT_EQ(done.code, 0);
  EXPECT_EQ(done.json()["kept_per_layer"], (Json{{"0", 6}, {"1", 6}, {"2", 5}}));
  EXPECT_EQ(done.json()["experts_dropped"], 7);
  ASSERT_EQ(
      RunMoewe("experts defrag " + At("cut.cmf") + " " + At("again.cmf") + " --cover 0.5").code, 0);
  for (const auto& [file, golden] :
       {std::pair("cut.cmf", "moe_qwen3_q4tp_moedefrag.cmf"),
        std::pair("again.cmf", "moe_qwen3_q4tp_moedefrag_again.cmf")}) {
    EXPECT_EQ(RunMoewe("verify " + At(file)).code, 0);
    const Json differs = RunMoewe("diff --json " + At(file) + " " + Golden(golden)).json();
    EXPECT_EQ(differs["tensors"].size(), 0u);
    EXPECT_EQ(differs["header"].size(), 1u) << differs["header"];  // the tool
    EXPECT_EQ(Logits(At(file), ""), Logits(Golden(golden), ""));
  }
  // Nothing to start from, nothing to leave out, over itself.
  EXPECT_EQ(RunMoewe("experts defrag " + source + " " + At("x.cmf") + " --cover 0.5").code, 2);
  EXPECT_EQ(RunMoewe("experts defrag " + At("again.cmf") + " " + At("x.cmf") + " --cover 1").code,
            2);
  EXPECT_EQ(RunMoewe("experts defrag " + At("cut.cmf") + " " + At("cut.cmf") + " --cover 0.5").code,
            2);
  EXPECT_FALSE(fs::exists(At("x.cmf")));
}

TEST_F(MasksTest, ARecordedRunIsSimulated) {
  const std::string demo = paths::SourceDir() + "/models/demo";
  const std::string text = Put("t.txt", "Once upon a time there was a small boat on a wide lake.");
  ASSERT_EQ(RunMoewe("experts stats " + demo + " " + text + " --out " + At("s.json") + " --trace " +
                     At("t.trace"))
                .code,
            0);
  const Outcome done = RunMoewe("experts simulate --json --slots 16,128 " + At("t.trace"));
  ASSERT_EQ(done.code, 0);
  const Json result = done.json();
  uint64_t chosen = 0;
  const Json counts = golden::ReadJson(At("s.json"));
  for (const Json& layer : counts) {
    for (const Json& count : layer) chosen += count.get<uint64_t>();
  }
  EXPECT_EQ(result["accesses"], chosen);
  EXPECT_EQ(result["experts"], 128);
  ASSERT_EQ(result["results"].size(), 2u);
  for (const Json& row : result["results"]) {
    for (const char* policy : {"lru", "lru+floor", "lfu"}) {
      EXPECT_LE(row["hits"][policy], row["hits"]["optimal"]);
    }
  }
  // With room for all of them every policy misses each expert once.
  EXPECT_EQ(result["results"][1]["hits"]["lru"], result["results"][1]["hits"]["optimal"]);
  EXPECT_EQ(RunMoewe("experts simulate " + At("t.trace") + " --slots 2").code, 2);
  EXPECT_EQ(RunMoewe("experts simulate " + text).code, 3);
  // What logits records is a trace too.
  ASSERT_EQ(
      RunMoewe("logits " + demo + " --ids 5,6,7 --out /dev/null --router " + At("r.json")).code, 0);
  EXPECT_EQ(RunMoewe("experts simulate --json " + At("r.json")).json()["tokens"], 3);
}

}  // namespace
}  // namespace moewe
