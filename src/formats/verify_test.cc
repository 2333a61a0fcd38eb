#include "formats/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "formats/cmf/cmf_file.h"
#include "formats/cmf/directory.h"
#include "formats/cmf/writer.h"
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

// Each dtype with a byte less than its matrix takes: where the size says so the file does not open,
// where only the content does `verify` says it.
TEST_F(VerifyFolderTest, EveryDtypeOneByteShort) {
  const std::vector<uint8_t> good =
      golden::ReadBytes(golden::Path("cmf/files/mixed_all_dtypes.cmf"));
  const cmf::Envelope envelope = cmf::ParseEnvelope(good, "");
  const auto records = cmf::ParseDirectory(good, envelope, "");
  std::set<DType> seen;
  for (size_t i = 0; i < records.size(); ++i) {
    if (!seen.insert(records[i].dtype).second) continue;
    std::vector<uint8_t> bytes = good;
    std::fill_n(bytes.begin() + 0x78, 8, uint8_t{0});  // the directory's hash
    const uint64_t shorter = records[i].nbytes - 1;
    std::memcpy(bytes.data() + envelope.directory.offset + cmf::kDirectoryHeaderSize +
                    i * cmf::kRecordSize + 40,
                &shorter, sizeof(shorter));
    const VerifyReport report =
        Check(Put("short.cmf", {reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
    ASSERT_FALSE(report.ok()) << DTypeName(records[i].dtype);
    EXPECT_EQ(report.problems[0].code, ErrorCode::kBounds) << DTypeName(records[i].dtype);
  }
  EXPECT_EQ(seen.size(), 13u);
}

// A mixture whose routers have other rows than the layers have experts is no model.
TEST_F(VerifyFolderTest, RoutersAreCheckedAgainstTheExperts) {
  const auto whole = CmfFile::Open(golden::Path("cmf/files/moe_qwen2_q8.cmf").string());
  for (const std::string missing : {"mlp.experts.7.", "mlp.experts.3."}) {
    CmfPlan plan;
    plan.header = whole->config();
    std::vector<Bytes> bytes;
    for (const TensorView& tensor : whole->tensors()) {
      if (tensor.name.find(missing) != std::string::npos) continue;
      plan.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes.size()});
      bytes.push_back(tensor.bytes);
    }
    const auto writer = CmfWriter::Create(std::move(plan), At("gap.cmf"));
    for (size_t i = 0; i < bytes.size(); ++i) writer->Write(i, bytes[i]);
    writer->Finish();
    const VerifyReport report = Check(At("gap.cmf"));
    ASSERT_EQ(report.problems.size(), 1u) << missing;
    EXPECT_EQ(report.problems[0].code, ErrorCode::kParse);
    EXPECT_EQ(report.problems[0].where.field, "tensor 'model.layers.1.mlp.gate.weight'");
  }
}

// Pictures from texts (section 12) can't be run, but such a file is looked at and checked as any
// other: names of its own, convolutions, configs as bytes.
TEST_F(VerifyFolderTest, PipelineContainers) {
  CmfPlan plan;
  plan.header = CmfFile::Open(golden::Path("cmf/files/dense_qwen3_q8.cmf").string())->config();
  plan.header["arch"]["arch_name"] = "lumina2-image";
  plan.header["provenance"] = {{"pipeline", "lumina2"}};
  plan.tensors = {{"te.model.embed_tokens.weight", DType::kF16, {4, 4}, 32},
                  {"dit.layers.0.attn.weight", DType::kQ4Tiled, {2, 32}, 36},
                  {"vae.decoder.conv_in.weight", DType::kF16, {2, 2, 3, 3}, 72},
                  {"dit.config_json", DType::kU8, {9}, 9}};
  const auto writer = CmfWriter::Create(plan, At("pictures.cmf"));
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    writer->Write(i, std::vector<uint8_t>(*plan.tensors[i].nbytes, 0x33));
  }
  writer->Finish();
  const auto file = CmfFile::Open(At("pictures.cmf"));
  ASSERT_EQ(file->tensors().size(), 4u);
  EXPECT_EQ(file->Find("vae.decoder.conv_in.weight")->shape, (std::vector<uint64_t>{2, 2, 3, 3}));
  EXPECT_TRUE(Check(At("pictures.cmf")).ok());
  std::vector<uint8_t> bytes = golden::ReadBytes(At("pictures.cmf"));
  bytes[file->Find("dit.config_json")->file_offset] ^= 1;
  const VerifyReport flipped =
      Check(Put("flipped.cmf", {reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  ASSERT_EQ(flipped.problems.size(), 1u);
  EXPECT_EQ(flipped.problems[0].where.field, "tensor 'dit.config_json'");
}

}  // namespace
}  // namespace moewe::formats
