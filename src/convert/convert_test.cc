// Re-encoding against files that the existing runtime made, resuming, and the choice of dtypes.
#include "convert/convert.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/hash64.h"
#include "convert/dtype_choice.h"
#include "golden.h"
#include "paths.h"

namespace moewe::convert {
namespace {

namespace fs = std::filesystem;

class ConvertTest : public testing::Test {
 protected:
  ConvertTest()
      : folder_(fs::temp_directory_path() / ("moewe_convert_test." + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~ConvertTest() override { fs::remove_all(folder_); }
  std::string At(const std::string& name) const { return (folder_ / name).string(); }

  fs::path folder_;
  ThreadPool pool_{2};
};

std::map<std::string, std::pair<DType, uint64_t>> Hashes(const std::string& path) {
  std::map<std::string, std::pair<DType, uint64_t>> hashes;
  const auto file = formats::OpenCheckpoint(path);
  for (const formats::TensorView& tensor : file->tensors()) {
    EXPECT_EQ(HashBytes(tensor.bytes), tensor.hash) << tensor.name;
    hashes[tensor.name] = {tensor.dtype, tensor.hash};
  }
  return hashes;
}

TEST_F(ConvertTest, ReencodingGivesTheBytesOfExistingFiles) {
  const struct {
    const char* from;
    const char* to;
    DType quant;
  } kPairs[] = {{"moe_qwen2_f32", "moe_qwen2_q8", DType::kQ8Row},
                {"masks_llama_f32", "masks_llama_q8row", DType::kQ8Row},
                {"dense_qwen2_f32", "unsharded_q8_2f", DType::kQ82f}};
  for (const auto& pair : kPairs) {
    const auto golden_file = [](const char* name) {
      return golden::Path("cmf/files/" + std::string(name) + ".cmf").string();
    };
    const auto source = formats::OpenCheckpoint(golden_file(pair.from));
    ConvertOptions options;
    options.quant = pair.quant;
    ConvertToCmf(*source, At("out.cmf"), options, pool_);
    EXPECT_EQ(Hashes(At("out.cmf")), Hashes(golden_file(pair.to))) << pair.from;
    EXPECT_TRUE(std::ranges::equal(formats::OpenCheckpoint(At("out.cmf"))->tokenizer_json(),
                                   source->tokenizer_json()));
  }
}

TEST_F(ConvertTest, StoppedConversionLeavesNoFileAndResumesToTheSameBytes) {
  const auto source = formats::OpenCheckpoint(paths::DemoModel());
  ConvertOptions options;
  options.quant = DType::kQ4tp;
  ConvertToCmf(*source, At("whole.cmf"), options, pool_);
  options.progress = [](size_t done, size_t) {
    if (done == 100) throw Error(ErrorCode::kInterrupted, "stop");
  };
  EXPECT_THROW(ConvertToCmf(*source, At("part.cmf"), options, pool_), Error);
  EXPECT_FALSE(fs::exists(At("part.cmf")));
  options.progress = nullptr;
  options.resume = true;
  ThreadPool single(1);
  ConvertToCmf(*source, At("part.cmf"), options, single);
  EXPECT_EQ(golden::ReadBytes(At("part.cmf")), golden::ReadBytes(At("whole.cmf")));
}

TEST(GlobTest, StarsAndQuestionMarks) {
  EXPECT_TRUE(GlobMatches("*.down_proj.*", "model.layers.0.mlp.down_proj.weight"));
  EXPECT_TRUE(GlobMatches("lm_hea?.weight", "lm_head.weight"));
  EXPECT_FALSE(GlobMatches("lm_head", "lm_head.weight"));
  EXPECT_FALSE(GlobMatches("*.bias", "lm_head.weight"));
}

}  // namespace
}  // namespace moewe::convert
