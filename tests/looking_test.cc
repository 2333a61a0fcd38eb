// info, verify and dequant as a user runs them: exit codes, JSON, files.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "golden.h"
#include "paths.h"
#include "program.h"

namespace moewe {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::string Golden(const std::string& name) { return golden::Path("cmf/" + name).string(); }

class LookingTest : public testing::Test {
 protected:
  LookingTest()
      : folder_(fs::temp_directory_path() / ("moewe_looking." + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~LookingTest() override { fs::remove_all(folder_); }
  std::string At(const std::string& name) const { return (folder_ / name).string(); }
  fs::path folder_;
};

TEST_F(LookingTest, InfoAgreesWithTheDescriptions) {
  for (const char* name :
       {"masks_llama_f32", "mixed_all_dtypes", "loop_masks", "skills_2", "sharded"}) {
    const Json expected = golden::ReadJson(Golden("files/" + std::string(name) + ".expected.json"));
    const Outcome result = RunMoewe("info --json --header --tensors " +
                                    Golden("files/" + expected["file"].get<std::string>()));
    ASSERT_EQ(result.code, 0) << name;
    const Json info = result.json();
    EXPECT_EQ(info["header"], expected["header"]);
    EXPECT_EQ(info["envelope"], expected["envelope"]);
    EXPECT_EQ(info["required_features"], expected["required_features"]);
    EXPECT_EQ(info["sparse_index"], expected["sparse_index"]);
    EXPECT_EQ(info["masks"].size(), expected["masks"].size());
    ASSERT_EQ(info["tensors"].size(), expected["tensors"].size());
    for (size_t i = 0; i < info["tensors"].size(); ++i) {
      const Json& actual = info["tensors"][i];
      const Json& tensor = expected["tensors"][i];
      EXPECT_EQ(actual["name"], tensor["name"]);
      EXPECT_EQ(actual["dtype"], tensor["dtype"]);
      EXPECT_EQ(actual["shape"], tensor["shape"]);
      EXPECT_EQ(actual["offset"], tensor["off"]);
      EXPECT_EQ(actual["nbytes"], tensor["nbytes"]);
      EXPECT_EQ(actual["hash"], tensor["hash"]);
    }
    EXPECT_EQ(Json::parse(RunMoewe("info --header " +
                                   Golden("files/" + expected["file"].get<std::string>()))
                              .out),
              expected["header"]);
  }
}

TEST_F(LookingTest, InfoOfAFolderAndOfOneShardAlone) {
  const Json demo = RunMoewe("info --json " + paths::DemoModel()).json();
  EXPECT_EQ(demo["kind"], "huggingface");
  EXPECT_EQ(demo["dtypes"]["bf16"]["tensors"], demo["tensor_count"]);
  fs::copy_file(Golden("files/sharded-00002-of-00003.cmf"), At("sharded-00002-of-00003.cmf"));
  const Json shard = RunMoewe("info --json " + At("sharded-00002-of-00003.cmf")).json();
  EXPECT_EQ(shard["shard"], Json({{"no", 2}, {"count", 3}}));
  EXPECT_EQ(RunMoewe("verify " + At("sharded-00002-of-00003.cmf")).code, 0);
}

TEST_F(LookingTest, ErrorsAreJsonWithTheirExitCodes) {
  const auto code = [](const Outcome& result) {
    return result.json()["error"]["code"].get<std::string>();
  };
  const Outcome broken = RunMoewe("info --json " + Golden("bad/version_3.cmf"));
  EXPECT_EQ(broken.code, 3);
  EXPECT_EQ(code(broken), "UnsupportedVersion");
  const Outcome missing = RunMoewe("verify --json " + At("nothing.cmf"));
  EXPECT_EQ(missing.code, 1);
  EXPECT_EQ(code(missing), "NotFound");
}

TEST_F(LookingTest, VerifyListsProblems) {
  const Outcome bad = RunMoewe("verify --json " + Golden("bad/flip_vocab.cmf"));
  EXPECT_EQ(bad.code, 3);
  EXPECT_EQ(bad.json()["ok"], false);
  EXPECT_EQ(bad.json()["problems"][0]["code"], "HashMismatch");
  const Outcome good = RunMoewe("verify --json " + Golden("files/dense_qwen3_q4tp.cmf"));
  EXPECT_EQ(good.code, 0);
  EXPECT_EQ(good.json()["ok"], true);
  EXPECT_TRUE(good.json()["problems"].empty());
  EXPECT_FALSE(good.json()["unprotected"].empty());
}

// f32 tensors come out as they are; the file appears complete or not at all.
TEST_F(LookingTest, DequantWritesFloats) {
  const std::string file = Golden("files/dense_qwen2_f32.cmf");
  const std::string flags = " --tensor model.embed_tokens.weight --out ";
  ASSERT_EQ(RunMoewe("dequant " + file + flags + At("out.f32")).code, 0);
  const Json info = RunMoewe("info --json --tensors " + file).json();
  const std::vector<uint8_t> bytes = golden::ReadBytes(file);
  for (const Json& tensor : info["tensors"]) {
    if (tensor["name"] != "model.embed_tokens.weight") continue;
    const auto begin = bytes.begin() + tensor["file_offset"].get<std::ptrdiff_t>();
    EXPECT_EQ(golden::ReadBytes(At("out.f32")),
              std::vector<uint8_t>(begin, begin + tensor["nbytes"].get<std::ptrdiff_t>()));
  }
  EXPECT_EQ(RunMoewe("dequant " + file + flags + "-").out.size(), 320u * 64 * 4);
  EXPECT_EQ(RunMoewe("dequant " + file + " --tensor nope --out " + At("no.f32")).code, 2);
  EXPECT_EQ(RunMoewe("dequant " + Golden("bad/flip_tensor.cmf") + flags + At("no.f32")).code, 3);
  EXPECT_FALSE(fs::exists(At("no.f32")));
}

// A flipped bit in one expert: found at once, when the expert is first chosen, or never.
TEST_F(LookingTest, VerifyAsALoadOption) {
  const std::string source = golden::Path("cmf/files/moe_qwen3_q4tp.cmf").string();
  const ScratchFolder scratch;
  const auto run = [](const std::string& file, const std::string& flags) {
    return RunMoewe("run --json --greedy -n 1 --task none --ids 3,5 " + flags + " " + file);
  };
  size_t lazily = 0;
  const nlohmann::json tensors = RunMoewe("info --json --tensors " + source).json()["tensors"];
  for (int expert = 0; expert < 8; ++expert) {
    const std::string name =
        "model.layers.1.mlp.experts." + std::to_string(expert) + ".up_proj.weight";
    std::vector<uint8_t> bytes = golden::ReadBytes(source);
    for (const auto& tensor : tensors) {
      if (tensor["name"] == name) bytes[tensor["file_offset"].get<size_t>() + 40] ^= 1;
    }
    const std::string file = scratch.Put("bad.cmf", {bytes.begin(), bytes.end()});
    const Outcome full = run(file, "--verify full");
    EXPECT_EQ(full.code, 3);
    EXPECT_EQ(full.json()["error"]["code"], "HashMismatch");
    EXPECT_NE(full.out.find(name), std::string::npos);
    EXPECT_EQ(run(file, "--verify none").code, 0);
    const Outcome lazy = run(file, "");
    if (lazy.code == 0) continue;
    ++lazily;
    EXPECT_EQ(lazy.json()["error"]["code"], "HashMismatch");
    EXPECT_NE(lazy.out.find(name), std::string::npos);
  }
  // Two tokens choose 2 of 8 experts each.
  EXPECT_GE(lazily, 2u);
  EXPECT_LE(lazily, 4u);
}

}  // namespace
}  // namespace moewe
