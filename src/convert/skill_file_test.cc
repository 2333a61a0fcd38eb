// Standalone skills against the golden ones.
#include "convert/skill_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "convert/skill_test_files.h"
#include "formats/verify.h"
#include "moewe/error.h"

namespace moewe::convert {
namespace {

namespace fs = std::filesystem;
using formats::CmfFile;
using formats::TensorView;

class SkillFileTest : public testing::Test {
 protected:
  SkillFileTest()
      : folder_(fs::temp_directory_path() / ("moewe_skill_file." + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~SkillFileTest() override { fs::remove_all(folder_); }

  std::string At(const std::string& name) const { return (folder_ / name).string(); }
  static std::unique_ptr<CmfFile> Golden(const std::string& name) {
    return CmfFile::Open(GoldenFile(name));
  }
  static void ExpectSameTensors(const CmfFile& a, const CmfFile& b) {
    ASSERT_EQ(a.tensors().size(), b.tensors().size());
    for (size_t i = 0; i < a.tensors().size(); ++i) {
      const TensorView& one = a.tensors()[i];
      const TensorView& other = b.tensors()[i];
      EXPECT_EQ(one.name, other.name);
      EXPECT_EQ(one.dtype, other.dtype);
      EXPECT_EQ(one.shape, other.shape);
      EXPECT_TRUE(std::ranges::equal(one.bytes, other.bytes)) << one.name;
    }
  }
  static void ExpectSameMasks(const CmfFile& a, const CmfFile& b) {
    const auto& one = a.contents().masks;
    const auto& other = b.contents().masks;
    EXPECT_EQ(one.default_task, other.default_task);
    ASSERT_EQ(one.masks.size(), other.masks.size());
    for (size_t i = 0; i < one.masks.size(); ++i) {
      EXPECT_EQ(one.masks[i].name, other.masks[i].name);
      EXPECT_TRUE(std::ranges::equal(one.masks[i].blob, other.masks[i].blob));
    }
    EXPECT_EQ(a.contents().sparse_index.size(), b.contents().sparse_index.size());
  }
  std::vector<formats::VerifyProblem> Problems(const std::string& name,
                                               const std::string& base = "") {
    ThreadPool pool(1);
    return formats::Verify(At(name), {.base = base}, &pool, [](uint64_t, uint64_t) {}).problems;
  }

  fs::path folder_;
};

TEST_F(SkillFileTest, ExportIsTheGoldenSkill) {
  const SkillFileResult result = ExportSkill(*Golden("specialist"), *Golden("skill_base"),
                                             At("s.cmf"), {.id = "gfx-html", .name = "demo skill"});
  EXPECT_EQ(result.tensors, 6u);
  EXPECT_TRUE(Problems("s.cmf", GoldenFile("skill_base")).empty());
  EXPECT_FALSE(Problems("s.cmf", GoldenFile("specialist")).empty());
  const auto mine = CmfFile::Open(At("s.cmf"));
  const auto wanted = Golden("gfx.skill");
  ExpectSameTensors(*mine, *wanted);
  ExpectSameMasks(*mine, *wanted);
  EXPECT_EQ(mine->contents().envelope.required_features,
            wanted->contents().envelope.required_features);
  const auto& record = mine->contents().header.skills.at(0);
  const auto& golden = wanted->contents().header.skills.at(0);
  EXPECT_EQ(record.id, golden.id);
  EXPECT_EQ(record.name, golden.name);
  EXPECT_EQ(record.layers, golden.layers);
  EXPECT_EQ(record.base_dir_hash, golden.base_dir_hash);
  EXPECT_EQ(record.base_arch, golden.base_arch);
  EXPECT_EQ(record.task, golden.task);
}

TEST_F(SkillFileTest, ApplyIsTheGoldenModel) {
  ApplySkill(*Golden("skill_base"), *Golden("gfx.skill"), At("a.cmf"), false, {});
  EXPECT_TRUE(Problems("a.cmf").empty());
  const auto mine = CmfFile::Open(At("a.cmf"));
  const auto wanted = Golden("applied");
  ExpectSameTensors(*mine, *wanted);
  ExpectSameTensors(*mine, *Golden("specialist"));
  ExpectSameMasks(*mine, *wanted);
  EXPECT_TRUE(std::ranges::equal(mine->tokenizer_json(), wanted->tokenizer_json()));
  EXPECT_EQ(mine->contents().envelope.required_features,
            wanted->contents().envelope.required_features);
  EXPECT_EQ(nlohmann::json(mine->config()["skills"]), nlohmann::json(wanted->config()["skills"]));
  EXPECT_EQ(mine->config()["arch"], Golden("skill_base")->config()["arch"]);
}

TEST_F(SkillFileTest, TheGoldenFaultsAreRefused) {
  const nlohmann::json expected = golden::ReadJson(golden::Path("cmf/bad/expected.json"));
  const auto path = [](const std::string& name) {
    return golden::Path("cmf/bad/" + name).string();
  };
  size_t cases = 0;
  for (const auto& one : expected["cases"]) {
    if (one["action"] != "apply") continue;
    SCOPED_TRACE(one["name"].get<std::string>());
    ++cases;
    const auto base = CmfFile::Open(path(one["files"][0]));
    const auto skill = CmfFile::Open(path(one["files"][1]));
    const auto thrown = Thrown([&] { ApplySkill(*base, *skill, At("out.cmf"), false, {}); });
    if (one["expect"] == "ok") {
      EXPECT_EQ(thrown, std::nullopt);
    } else {
      EXPECT_EQ(thrown, ErrorCode::kParse);
      EXPECT_FALSE(fs::exists(At("out.cmf")));
      EXPECT_FALSE(fs::exists(At("out.cmf.partial")));
    }
    fs::remove(At("out.cmf"));
  }
  EXPECT_GE(cases, 3u);
}

TEST_F(SkillFileTest, AnotherBaseOnlyByForce) {
  // The base with one tensor changed: the same model, other bytes.
  WriteChanged(GoldenFile("skill_base"), At("other.cmf"), [](const TensorView& tensor) {
    std::vector<uint8_t> bytes;
    if (tensor.name == "model.layers.1.mlp.up_proj.weight") {
      bytes.assign(tensor.bytes.begin(), tensor.bytes.end());
      bytes[0] ^= 1;
    }
    return bytes;
  });
  const auto base = CmfFile::Open(At("other.cmf"));
  const auto skill = Golden("gfx.skill");
  EXPECT_EQ(Thrown([&] { ApplySkill(*base, *skill, At("a.cmf"), false, {}); }), ErrorCode::kParse);
  int warnings = 0;
  ApplySkill(*base, *skill, At("a.cmf"), true, [&](const std::string&) { ++warnings; });
  EXPECT_EQ(warnings, 1);
  EXPECT_TRUE(Problems("a.cmf").empty());
  EXPECT_TRUE(std::ranges::equal(
      CmfFile::Open(At("a.cmf"))->Find("model.layers.1.mlp.up_proj.weight")->bytes,
      base->Find("model.layers.1.mlp.up_proj.weight")->bytes));
}

TEST_F(SkillFileTest, WhatCannotBeExported) {
  const auto base = Golden("skill_base");
  const auto code = [&](const std::string& specialist, SkillExportOptions options = {.id = "s"}) {
    return Thrown([&] { ExportSkill(*Golden(specialist), *base, At("s.cmf"), options); });
  };
  EXPECT_EQ(code("skill_base"), ErrorCode::kUsage);       // nothing differs
  EXPECT_EQ(code("dense_qwen3_q8"), ErrorCode::kUsage);   // another arch
  EXPECT_EQ(code("gfx.skill"), ErrorCode::kUnsupported);  // no whole model
  EXPECT_EQ(code("specialist", {.id = ""}), ErrorCode::kUsage);
  EXPECT_EQ(code("specialist", {.id = "s", .task = "nope"}), ErrorCode::kUnknownName);
  EXPECT_EQ(Thrown([&] {
              ExportSkill(*CmfFile::Open(GoldenFile("sharded-00001-of-00003")), *base, At("s.cmf"),
                          {.id = "s"});
            }),
            ErrorCode::kUnsupported);
  EXPECT_EQ(Thrown([&] {
              ExportSkill(*Golden("specialist"), *base, GoldenFile("skill_base"), {.id = "s"});
            }),
            ErrorCode::kUsage);
  EXPECT_FALSE(fs::exists(At("s.cmf")));
  ExportSkill(*Golden("specialist"), *base, At("s.cmf"), {.id = "s", .task = "gated"});
  EXPECT_EQ(CmfFile::Open(At("s.cmf"))->contents().header.skills.at(0).task, "gated");
  // A skill twice.
  ApplySkill(*base, *CmfFile::Open(At("s.cmf")), At("a.cmf"), false, {});
  EXPECT_EQ(Thrown([&] {
              ApplySkill(*CmfFile::Open(At("a.cmf")), *CmfFile::Open(At("s.cmf")), At("b.cmf"),
                         true, [](const std::string&) {});
            }),
            ErrorCode::kUsage);
}

}  // namespace
}  // namespace moewe::convert
