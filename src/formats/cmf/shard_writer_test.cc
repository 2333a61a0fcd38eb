// Shard sets: what is written, when it gets its names, and what does not belong together.
#include "formats/cmf/shard_writer.h"

#include <gtest/gtest.h>
#include <sys/statvfs.h>

#include "base/hash64.h"
#include "formats/cmf/cmf_file.h"
#include "formats/test_util.h"
#include "formats/verify.h"
#include "golden.h"

namespace moewe::formats {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kTensorBytes = 20000;
constexpr size_t kTensors = 9;

std::vector<uint8_t> Content(size_t index, uint8_t seed) {
  std::vector<uint8_t> bytes(kTensorBytes);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 7 + index + seed);
  return bytes;
}

class ShardWriterTest : public ScratchTest {
 protected:
  static CmfPlan Plan() {
    CmfPlan plan;
    plan.header = CmfFile::Open(golden::Path("cmf/bad/ok_control.cmf").string())->config();
    plan.header.erase("section_hashes");
    plan.header["tokenizer_config"] = {{"chat_template", "{{ messages }}"}};
    plan.header["skills"] = nlohmann::ordered_json::array({{{"id", "sql"}}});
    plan.tokenizer.assign(3000, 'x');
    for (size_t i = 0; i < kTensors; ++i) {
      plan.tensors.push_back(
          {"tensor" + std::to_string(i), DType::kU8, {kTensorBytes}, kTensorBytes});
    }
    return plan;
  }
  std::unique_ptr<CmfWriter> Start(const std::string& name, uint64_t max, uint8_t seed = 0,
                                   size_t tensors = kTensors, bool resume = false) {
    auto writer = CreateShardWriter(SplitPlan(Plan(), max), At(name),
                                    {.resume = resume, .keep_partial = true});
    for (size_t i = 0; i < tensors; ++i) {
      if (!writer->done(i)) writer->Write(i, Content(i, seed));
    }
    return writer;
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
};

TEST_F(ShardWriterTest, ASetReadsBackByAnyName) {
  constexpr uint64_t kMax = 70000;
  Start("m.cmf", kMax)->Finish();
  const std::vector<std::string> names = Names();
  ASSERT_GE(names.size(), 3u);
  EXPECT_EQ(names[0], "m-00001-of-0000" + std::to_string(names.size()) + ".cmf");
  std::string set;
  ThreadPool threads(1);
  for (size_t shard = 0; shard < names.size(); ++shard) {
    SCOPED_TRACE(names[shard]);
    EXPECT_LE(fs::file_size(At(names[shard])), kMax);
    EXPECT_TRUE(Verify(At(names[shard]), {}, &threads, [](uint64_t, uint64_t) {}).ok());
    const auto file = CmfFile::Open(At(names[shard]));
    EXPECT_EQ(file->files().front(), At(names[0]));
    EXPECT_EQ(file->tokenizer_json().size(), 3000u);
    ASSERT_EQ(file->tensors().size(), kTensors);
    for (size_t i = 0; i < kTensors; ++i) {
      const TensorView& tensor = file->tensors()[i];
      EXPECT_EQ(tensor.name, "tensor" + std::to_string(i));
      EXPECT_EQ(std::vector<uint8_t>(tensor.bytes.begin(), tensor.bytes.end()), Content(i, 0));
    }
    const auto alone = CmfFile::OpenAlone(At(names[shard]));
    const Json& header = alone->config();
    EXPECT_EQ(header["shard"]["no"], shard + 1);
    EXPECT_EQ(header["shard"]["count"], names.size());
    EXPECT_EQ(header["tokenizer_config"].is_null(), shard > 0);
    EXPECT_EQ(header["skills"].empty(), shard > 0);
    EXPECT_EQ(alone->tokenizer_json().empty(), shard > 0);
    if (shard == 0) set = header["shard_set"];
    EXPECT_EQ(header["shard_set"], set);
    EXPECT_NE(set, HashToHex(0));
  }
}

TEST_F(ShardWriterTest, WhatFitsIsOneOrdinaryFile) {
  Start("m.cmf", 1 << 20)->Finish();
  EXPECT_EQ(Names(), std::vector<std::string>{"m.cmf"});
  const auto file = CmfFile::Open(At("m.cmf"));
  EXPECT_TRUE(!file->config().contains("shard") || file->config()["shard"].is_null());
}

TEST_F(ShardWriterTest, ATensorBeyondTheLimitGetsItsOwnFile) {
  const std::vector<CmfPlan> plans = SplitPlan(Plan(), 1000);
  ASSERT_EQ(plans.size(), kTensors);
  for (const CmfPlan& plan : plans) EXPECT_EQ(plan.tensors.size(), 1u);
}

TEST_F(ShardWriterTest, NoNameBeforeAllAreComplete) {
  auto writer = Start("m.cmf", 70000);
  writer->Seal();
  for (const std::string& name : Names()) EXPECT_FALSE(name.ends_with(".cmf")) << name;
  writer->Publish();
  for (const std::string& name : Names()) EXPECT_TRUE(name.ends_with(".cmf")) << name;
}

TEST_F(ShardWriterTest, AnInterruptedSetResumesToTheSameBytes) {
  Start("whole.cmf", 70000)->Finish();
  Start("m.cmf", 70000, 0, 5).reset();
  for (const std::string& name : Names()) {
    EXPECT_FALSE(name.starts_with("m-") && name.ends_with(".cmf")) << name;
  }
  auto writer = CreateShardWriter(SplitPlan(Plan(), 70000), At("m.cmf"),
                                  {.resume = true, .keep_partial = true});
  for (size_t i = 0; i < kTensors; ++i) {
    EXPECT_EQ(writer->done(i), i < 5) << i;
    if (i >= 5) writer->Write(i, Content(i, 0));
  }
  writer->Finish();
  for (const std::string& path : writer->paths()) {
    const std::string name = fs::path(path).filename().string();
    EXPECT_EQ(golden::ReadBytes(path), golden::ReadBytes(At("whole" + name.substr(1))));
  }
}

// The arch is the same, the weights are not: as after an interruption between two names, when a set
// replaces an older one.
TEST_F(ShardWriterTest, AShardOfAnotherSetIsForeign) {
  Start("a.cmf", 70000, 0)->Finish();
  auto writer = Start("b.cmf", 70000, 1);
  writer->Finish();
  const std::vector<std::string> paths = writer->paths();
  const std::string last = fs::path(paths.back()).filename().string();
  fs::copy_file(paths.back(), At("a" + last.substr(1)), fs::copy_options::overwrite_existing);
  EXPECT_EQ(Thrown([&] { CmfFile::Open(At("a" + last.substr(1))); }), ErrorCode::kParse);
  fs::remove(At("a" + last.substr(1)));
  const std::string first = fs::path(paths.front()).filename().string();
  EXPECT_EQ(Thrown([&] { CmfFile::Open(At("a" + first.substr(1))); }), ErrorCode::kNotFound);
}

// Shards of which nothing is written yet leave no file behind, and do not count when a run goes on.
TEST_F(ShardWriterTest, AnInterruptionKeepsWhatHasTensors) {
  Start("m.cmf", 70000, 0, 1).reset();
  EXPECT_EQ(Names().size(), 2u);  // the first shard's partial file and its journal
  auto writer = Start("m.cmf", 70000, 0, kTensors, true);
  EXPECT_EQ(writer->resumed(), CmfResume::kContinued);
  writer->Finish();
  for (const std::string& name : Names()) EXPECT_TRUE(name.ends_with(".cmf")) << name;
}

TEST_F(ShardWriterTest, AFailureOnTheWayToTheFirstTensorLeavesNothing) {
  Put("m-00003-of-00003.cmf.partial", "in the way");
  const std::vector<std::string> before = Names();
  ASSERT_EQ(SplitPlan(Plan(), 70000).size(), 3u);
  EXPECT_EQ(Thrown([&] { Start("m.cmf", 70000); }), ErrorCode::kUsage);
  EXPECT_EQ(Names(), before);
}

// Each of them alone would fit.
TEST_F(ShardWriterTest, SpaceIsCheckedForAllFilesTogether) {
  CmfPlan plan = Plan();
  struct statvfs system = {};
  ASSERT_EQ(statvfs(folder_.c_str(), &system), 0);
  const uint64_t half = uint64_t{system.f_bavail} * system.f_frsize / 128 * 64;
  plan.tensors.clear();
  for (const char* name : {"a", "b", "c"}) plan.tensors.push_back({name, DType::kU8, {1}, half});
  EXPECT_EQ(Thrown([&] { CreateShardWriter(SplitPlan(std::move(plan), 70000), At("m.cmf"), {}); }),
            ErrorCode::kNoSpace);
  EXPECT_TRUE(Names().empty());
}

TEST_F(ShardWriterTest, TooManyFilesAreRefused) {
  CmfPlan plan = Plan();
  for (size_t i = 0; i < 600; ++i)
    plan.tensors.push_back({"t" + std::to_string(i), DType::kU8, {1}, 1});
  EXPECT_EQ(Thrown([&] { SplitPlan(plan, 1); }), ErrorCode::kUsage);
  EXPECT_TRUE(Names().empty());
}

}  // namespace
}  // namespace moewe::formats
