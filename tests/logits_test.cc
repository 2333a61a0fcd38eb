// moewe logits, as a script calls it: golden values from the files it writes, and the same bytes
// whatever the threads and the chunk.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hf_golden.h"
#include "paths.h"
#include "program.h"

namespace moewe {
namespace {

class LogitsVerb : public testing::Test {
 protected:
  LogitsVerb()
      : folder_(std::filesystem::temp_directory_path() /
                ("moewe_logits_test." + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~LogitsVerb() override { std::filesystem::remove_all(folder_); }
  std::string At(const std::string& name) const { return (folder_ / name).string(); }

  static std::string List(const std::vector<int32_t>& ids) {
    std::string list;
    for (const int32_t id : ids) list += (list.empty() ? "" : ",") + std::to_string(id);
    return list;
  }
  // The bytes of --all.
  std::vector<uint8_t> All(const std::string& arguments) const {
    EXPECT_EQ(RunMoewe("logits --all --out " + At("out") + " " + arguments).code, 0) << arguments;
    return golden::ReadBytes(At("out"));
  }

  std::filesystem::path folder_;
};

TEST_F(LogitsVerb, HiddenStatesAndRoutingAreWrittenInTheGoldenLayout) {
  const golden::HfGolden golden("qwen3_moe");
  for (const char* chunk : {"256", "1", "4"}) {
    SCOPED_TRACE(std::string("--chunk ") + chunk);
    ASSERT_EQ(RunMoewe("logits " + golden.folder.string() + " --activations f32 --ids " +
                       List(golden.Ids("p9")) + " --chunk " + chunk + " --out " + At("out") +
                       " --hidden " + At("hidden") + " --router " + At("router.json"))
                  .code,
              0);
    const std::vector<float> logits = golden::ReadF32(At("out"));
    const std::vector<float> all = golden.Array("p9.logits");
    ASSERT_EQ(logits.size() * 9, all.size());
    for (size_t i = 0; i < logits.size(); ++i) {
      EXPECT_NEAR(logits[i], all[8 * logits.size() + i],
                  2e-4 * golden.json["logit_std"].get<double>());
    }
    const std::vector<float> hidden = golden::ReadF32(At("hidden"));
    const std::vector<float> expected = golden.Array("p9.hidden");
    ASSERT_EQ(hidden.size(), expected.size());
    double scale = 0.0;
    for (const float value : expected) scale = std::max(scale, std::abs(double{value}));
    for (size_t i = 0; i < hidden.size(); ++i) EXPECT_NEAR(hidden[i], expected[i], 1e-4 * scale);
    const nlohmann::json router = golden::ReadJson(At("router.json"));
    ASSERT_EQ(router.size(), golden.json["router_p9"].size());
    for (const auto& [layer, want] : golden.json["router_p9"].items()) {
      EXPECT_EQ(router[layer]["ids"], want["ids"]) << "layer " << layer;
      EXPECT_EQ(router[layer]["weights"].size(), want["weights"].size());
    }
  }
}

TEST_F(LogitsVerb, ResultsDependNeitherOnThreadsNorOnChunks) {
  const std::string demo = paths::DemoModel();
  const std::string q4tp = At("q4tp.cmf");
  ASSERT_EQ(RunMoewe("convert --quiet --quant q4tp " + demo + " " + q4tp).code, 0);
  std::string ids = "1453";
  for (int i = 1; i < 24; ++i) ids += "," + std::to_string((i * 977 + 13) % 4096);
  for (const std::string& file : {q4tp, golden::Path("hf/gemma2").string()}) {
    const std::string list = file == q4tp ? ids : "5,9,2,70,3,3,41,8,100,6,7";
    for (const char* activations : {"int8", "f32"}) {
      SCOPED_TRACE(file + " " + activations);
      const std::string arguments = file + " --activations " + activations + " --ids " + list;
      const std::vector<uint8_t> one = All(arguments + " --threads 1");
      EXPECT_FALSE(one.empty());
      EXPECT_EQ(All(arguments + " --threads 2 --chunk 1"), one);
      EXPECT_EQ(All(arguments + " --threads 3 --chunk 5"), one);
      EXPECT_EQ(All(arguments + " --threads 7"), one);
    }
  }
}

}  // namespace
}  // namespace moewe
