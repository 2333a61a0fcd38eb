// moewe bench: what it reports and what it leaves behind. How fast anything is, is nobody's test.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "paths.h"
#include "program.h"

namespace moewe {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const std::string kShort = "bench --json -p 4 -n 2 -d 3 -r 1 ";

class BenchVerb : public testing::Test {
 protected:
  BenchVerb() : folder_(fs::temp_directory_path() / ("moewe_bench." + std::to_string(getpid()))) {
    fs::create_directories(folder_);
    setenv("TMPDIR", folder_.c_str(), 1);
  }
  ~BenchVerb() override {
    unsetenv("TMPDIR");
    fs::remove_all(folder_);
  }
  std::string At(const std::string& name) const { return (folder_ / name).string(); }
  fs::path folder_;
};

TEST_F(BenchVerb, MeasuresAModel) {
  const Outcome outcome = RunMoewe(kShort + "--threads 2 --chunk 3 " + paths::DemoModel());
  ASSERT_EQ(outcome.code, 0);
  const Json report = outcome.json();
  EXPECT_EQ(report["prefill"]["tokens"], 4);
  EXPECT_GT(report["prefill"]["tokens_per_s"], 0.0);
  EXPECT_EQ(report["decode"]["tokens"], 2);
  EXPECT_GT(report["decode"]["tokens_per_s"], 0.0);
  EXPECT_LE(report["decode"]["bytes_per_token"], report["weight_bytes"]);
  EXPECT_DOUBLE_EQ(report["decode"]["bytes_per_s"].get<double>(),
                   report["decode"]["bytes_per_token"].get<double>() *
                       report["decode"]["tokens_per_s"].get<double>());
  EXPECT_GT(report["scan"]["bytes_per_s"], 0.0);
  EXPECT_EQ(report["threads"], 2);
}

TEST_F(BenchVerb, KeepsASyntheticModelWhereAsked) {
  const Outcome made = RunMoewe(
      kShort + "--shape olmoe-1b-7b --layers 1 --vocab 64 --quant q4t --out " + At("made.cmf"));
  ASSERT_EQ(made.code, 0);
  EXPECT_EQ(made.json()["model"], "olmoe-1b-7b");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
  const Json info = RunMoewe("info --json " + At("made.cmf")).json();
  EXPECT_EQ(info["dtypes"]["q4_tiled"]["tensors"], 4 + 3 * 64 + 2);
  EXPECT_EQ(RunMoewe("verify " + At("made.cmf")).code, 0);
}

TEST_F(BenchVerb, TemporaryModelsGoAway) {
  ASSERT_EQ(RunMoewe(kShort + "--shape olmoe-1b-7b --layers 1 --vocab 64 --quant q4").code, 0);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(BenchVerb, MistakesHaveTheirCodes) {
  const Outcome unknown = RunMoewe("bench --json --shape qwen3-30b");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_EQ(unknown.json()["error"]["code"], "UnknownName");
  EXPECT_NE(unknown.out.find("qwen3-30b-a3b"), std::string::npos);
  const std::string demo = paths::DemoModel();
  for (const std::string& arguments :
       {std::string("bench"), "bench --shape olmoe-1b-7b " + demo, "bench --layers 1 " + demo,
        "bench --ctx 100 " + demo, std::string("bench --quant q5 --shape olmoe-1b-7b")}) {
    EXPECT_EQ(RunMoewe(arguments).code, 2) << arguments;
  }
}

}  // namespace
}  // namespace moewe
