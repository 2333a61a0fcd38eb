#include "formats/verify.h"

#include <gtest/gtest.h>

#include "formats/cmf/directory.h"
#include "formats/test_util.h"
#include "golden.h"
#include "paths.h"

namespace moewe::formats {
namespace {

namespace fs = std::filesystem;

VerifyReport Check(const fs::path& path) {
  ThreadPool pool(2);
  return Verify(path.string(), {}, &pool, [](uint64_t, uint64_t) {});
}

TEST(VerifyTest, BadFilesHaveTheProblemTheyWereMadeWith) {
  const nlohmann::json cases = golden::ReadJson(golden::Path("cmf/bad/expected.json"))["cases"];
  int checked = 0;
  for (const nlohmann::json& bad : cases) {
    const std::string name = bad["name"];
    if (bad["action"] != "verify" && bad["action"] != "open") continue;
    if (name == "shard_not_first") continue;
    const VerifyReport report = Check(golden::Path("cmf/bad/" + bad["open"].get<std::string>()));
    ++checked;
    if (bad["expect"] == "ok") {
      EXPECT_TRUE(report.ok()) << name << ": " << report.problems[0].message;
    } else if (bad["expect"] == "fail") {
      const std::string expected =
          bad["spec_error"] == "Hash" ? "HashMismatch" : bad["spec_error"].get<std::string>();
      ASSERT_FALSE(report.ok()) << name;
      EXPECT_EQ(ErrorCodeName(report.problems[0].code), expected) << name;
      EXPECT_FALSE(report.problems[0].where.file.empty()) << name;
    }
  }
  EXPECT_GT(checked, 80);
}

TEST(VerifyTest, GoodFilesAreClean) {
  for (const char* folder : {"cmf/files", "cmf/families"}) {
    for (const auto& entry : fs::directory_iterator(golden::Path(folder))) {
      if (entry.path().extension() != ".cmf") continue;
      const VerifyReport report = Check(entry.path());
      EXPECT_TRUE(report.ok()) << entry.path() << ": " << report.problems[0].message;
    }
  }
}

TEST(VerifyTest, SaysWhatNoHashCovers) {
  const auto mentions = [](const VerifyReport& report, const std::string& word) {
    for (const std::string& item : report.unprotected) {
      if (item.find(word) != std::string::npos) return true;
    }
    return false;
  };
  const VerifyReport legacy = Check(golden::Path("cmf/files/legacy_zero_hashes.cmf"));
  EXPECT_TRUE(mentions(legacy, "header"));
  EXPECT_TRUE(mentions(legacy, "directory"));
  const VerifyReport usual = Check(golden::Path("cmf/files/dense_qwen3_q8.cmf"));
  EXPECT_FALSE(mentions(usual, "header"));
  EXPECT_FALSE(mentions(usual, "tensor"));
  EXPECT_TRUE(mentions(usual, "envelope"));
  EXPECT_TRUE(mentions(usual, "padding"));
}

using VerifyFolderTest = ScratchTest;

TEST_F(VerifyFolderTest, HuggingFaceFolders) {
  const VerifyReport demo = Check(fs::path(paths::DemoModel()));
  EXPECT_TRUE(demo.ok());
  EXPECT_FALSE(demo.unprotected.empty());
  Put("config.json", "{}");
  Put("model.safetensors", Safetensors("{}", "x"));
  const VerifyReport broken = Check(folder_);
  ASSERT_EQ(broken.problems.size(), 1u);
  EXPECT_EQ(broken.problems[0].code, ErrorCode::kBounds);
  EXPECT_EQ(Thrown([&] { Check(folder_ / "none"); }), ErrorCode::kNotFound);
}

TEST_F(VerifyFolderTest, SeveralProblemsAreAllListed) {
  std::vector<uint8_t> bytes = golden::ReadBytes(golden::Path("cmf/files/dense_qwen3_q8.cmf"));
  for (const size_t at : {size_t{100'000}, size_t{130'000}}) bytes[at] ^= 0x10;
  const std::string path =
      Put("two.cmf", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  EXPECT_EQ(Check(path).problems.size(), 2u);
}

// Every record that is wrong has its line, behind the hash that tells that something is.
TEST_F(VerifyFolderTest, EveryFaultyRecordIsNamed) {
  std::vector<uint8_t> bytes = golden::ReadBytes(golden::Path("cmf/files/dense_qwen3_q8.cmf"));
  const cmf::Envelope envelope = cmf::ParseEnvelope(bytes, "");
  const auto record = [&](size_t index) {
    return bytes.data() + envelope.directory.offset + cmf::kDirectoryHeaderSize +
           index * cmf::kRecordSize;
  };
  record(1)[6] = 5;                      // dtype: reserved
  record(3)[7] = 9;                      // ndim
  record(4)[32] ^= 1;                    // off: not a multiple of 64
  record(6)[40] ^= 1;                    // nbytes: not what the shape takes
  std::copy_n(record(7), 6, record(8));  // the name of the one before
  const std::string path =
      Put("records.cmf", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  std::vector<std::string> fields;
  for (const VerifyProblem& problem : Check(path).problems) {
    if (problem.where.field.starts_with("directory")) fields.push_back(problem.where.field);
  }
  EXPECT_EQ(fields, (std::vector<std::string>{"directory", "directory[1].dtype",
                                              "directory[3].ndim", "directory[4].off",
                                              "directory[6].nbytes", "directory[8].name"}));
}

}  // namespace
}  // namespace moewe::formats
