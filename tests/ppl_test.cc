// moewe ppl on the demonstration model: golden values, files of other dtypes, ids, mistakes.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "golden.h"
#include "paths.h"
#include "program.h"

namespace moewe {
namespace {

const std::string kDemo = paths::DemoModel();

// The held-out texts of golden.json; two of them are third parties'.
std::string EvalText(const std::string& name) {
  const std::string inside = kDemo + "/eval/" + name + ".txt";
  return std::filesystem::exists(inside)
             ? inside
             : golden::SharedPath("demo-model/eval/" + name + ".txt").string();
}

// Whole texts take minutes under a sanitizer, which sees the same code in the shorter tests.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kWholeTexts = false;
#else
constexpr bool kWholeTexts = true;
#endif

class Scratch {
 public:
  explicit Scratch(const std::string& name) : path_(testing::TempDir() + "/moewe-ppl-" + name) {}
  ~Scratch() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }
  std::string Write(const std::string& text) const {
    std::ofstream(path_, std::ios::binary) << text;
    return path_;
  }

 private:
  std::string path_;
};

Outcome Ppl(const std::string& arguments) {
  return RunMoewe("ppl --json --quiet --activations f32 " + arguments);
}

// A held-out text in whole, and the golden values of it: Hugging Face's, in f32 from the bf16
// weights.
struct WholeText {
  explicit WholeText(const std::string& name)
      : path(EvalText(name)), golden(golden::ReadJson(kDemo + "/golden.json")["nll"][name]) {}
  // Why it cannot be scored here; empty = it can.
  std::string Missing() const {
    if (!std::filesystem::exists(path)) return "needs third-party data: " + path;
    return kWholeTexts ? "" : "whole texts are not scored under sanitizers";
  }

  std::string path;
  nlohmann::json golden;
};

class DemoPpl : public testing::TestWithParam<const char*> {};

TEST_P(DemoPpl, IsTheGoldenOne) {
  const WholeText text(GetParam());
  if (!text.Missing().empty()) GTEST_SKIP() << text.Missing();
  const nlohmann::json result = Ppl(kDemo + " " + text.path).json();
  EXPECT_EQ(result["tokens"], text.golden["tokens"]);
  EXPECT_EQ(result["predicted"], text.golden["predicted"]);
  EXPECT_NEAR(result["nll"].get<double>(), text.golden["nll"].get<double>(), 1e-4);
  EXPECT_NEAR(result["ppl"].get<double>(), std::exp(result["nll"].get<double>()), 1e-9);
}

TEST_P(DemoPpl, OfQ8IsWithinHalfAPercent) {
  const WholeText text(GetParam());
  if (!text.Missing().empty()) GTEST_SKIP() << text.Missing();
  const Scratch q8(std::string(GetParam()) + "-q8.cmf");
  ASSERT_EQ(RunMoewe("convert --quiet --quant q8 " + kDemo + " " + q8.path()).code, 0);
  const double ppl = Ppl(q8.path() + " " + text.path).json()["ppl"];
  EXPECT_NEAR(ppl / std::exp(text.golden["nll"].get<double>()), 1.0, 0.005);
}

INSTANTIATE_TEST_SUITE_P(All, DemoPpl, testing::Values("chat", "tales", "prose", "code"),
                         [](const auto& test) { return std::string(test.param); });

// Integer activations may add 0.3 %; how much each dtype takes is in docs/performance.md.
TEST(PplVerb, IntegerActivationsCostLittle) {
  const Scratch q4tp("q4tp.cmf");
  ASSERT_EQ(RunMoewe("convert --quiet --quant q4tp " + kDemo + " " + q4tp.path()).code, 0);
  const std::string arguments = q4tp.path() + " " + EvalText("chat") + " --max-windows 4";
  const double f32 = Ppl(arguments).json()["ppl"];
  const double int8 = RunMoewe("ppl --json --quiet --activations int8 " + arguments).json()["ppl"];
  EXPECT_NEAR(int8 / f32, 1.0, 0.003);
}

TEST(PplVerb, AFileAtF32ScoresLikeTheFolderItCameFrom) {
  const Scratch f32("f32.cmf");
  ASSERT_EQ(RunMoewe("convert --quiet --quant f32 " + kDemo + " " + f32.path()).code, 0);
  const std::string arguments = " --max-windows 3 --window 20 " + kDemo + "/eval/tales.txt";
  const nlohmann::json file = Ppl(f32.path() + arguments).json();
  const nlohmann::json folder = Ppl(kDemo + arguments).json();
  EXPECT_EQ(file["windows"], 3);
  EXPECT_EQ(file["predicted"], 3 * 19);
  EXPECT_EQ(file["nll"], folder["nll"]);
}

TEST(PplVerb, IdsAndTextAgreeAndSpecialTokensAreParsed) {
  const Scratch text("special.txt");
  const std::string tokens =
      RunMoewe("tokenize --json " + kDemo + " -p '<|im_start|>user Hello<|im_end|>'").out;
  const nlohmann::json ids = nlohmann::json::parse(tokens)["ids"];
  EXPECT_EQ(ids[0], 4094);
  const Scratch list("ids.json");
  list.Write(ids.dump());
  text.Write("<|im_start|>user Hello<|im_end|>");
  const nlohmann::json of_text = Ppl(kDemo + " " + text.path()).json();
  const nlohmann::json of_ids = Ppl(kDemo + " --ids " + list.path()).json();
  EXPECT_EQ(of_text["tokens"], ids.size());
  EXPECT_EQ(of_text["predicted"], ids.size() - 1);
  EXPECT_EQ(of_text["nll"], of_ids["nll"]);
  list.Write(nlohmann::json{{"ids", ids}}.dump());
  EXPECT_EQ(Ppl(kDemo + " --ids " + list.path()).json()["nll"], of_ids["nll"]);
}

// A window that the model has no positions for is as long as the model allows, and that is said.
TEST(PplVerb, WindowsFitTheModel) {
  const std::string model = golden::Path("hf/llama").string();
  const Scratch list("list.json");
  const auto positions =
      golden::ReadJson(golden::Path("hf/llama/config.json"))["max_position_embeddings"]
          .get<size_t>();
  std::vector<int> ids;
  for (size_t i = 0; i < positions + 5; ++i) ids.push_back(static_cast<int>(i % 50));
  list.Write(nlohmann::json(ids).dump());
  const std::string window = " --window " + std::to_string(positions + 1);
  const Outcome done = RunShell("$MOEWE ppl --json --activations f32" + window + " " + model +
                                " --ids " + list.path() + " 2>&1 >/dev/null");
  EXPECT_EQ(done.code, 0);
  EXPECT_NE(done.out.find("windows of " + std::to_string(positions) + " tokens"), std::string::npos)
      << done.out;
  const std::string arguments = model + " --ids " + list.path();
  const nlohmann::json clamped = Ppl(arguments + window).json();
  EXPECT_EQ(clamped["windows"], 2);
  EXPECT_EQ(clamped["nll"],
            Ppl(arguments + " --window " + std::to_string(positions)).json()["nll"]);
  EXPECT_EQ(Ppl(arguments + " --ctx 8" + window).code, 2);
}

TEST(PplVerb, MistakesHaveTheirExitCodes) {
  const Scratch text("text.txt");
  const Scratch list("list.json");
  const auto code = [](const std::string& arguments) { return Ppl(arguments).code; };
  EXPECT_EQ(code(kDemo + " " + text.Write("")), 2);
  EXPECT_EQ(code(kDemo + " " + text.Write("a")), 2);
  text.Write("Once upon a time");
  EXPECT_EQ(code(kDemo), 2);
  EXPECT_EQ(code(kDemo + " --window 1 " + text.path()), 2);
  EXPECT_EQ(code(kDemo + " --window 0 " + text.path()), 2);
  EXPECT_EQ(code(kDemo + " --ctx 3 " + text.path()), 2);
  EXPECT_EQ(code(kDemo + " no/such/text"), 1);
  EXPECT_EQ(code(kDemo + " --ids " + list.Write("[]")), 2);
  EXPECT_EQ(code(kDemo + " --ids " + list.Write("[1]")), 2);
  EXPECT_EQ(code(kDemo + " --ids " + list.Write("[1, 4096]")), 2);
  EXPECT_EQ(code(kDemo + " --ids " + list.Write("[1, -1]")), 2);
  EXPECT_EQ(code(kDemo + " --ids " + list.Write("[1, 4294967297]")), 2);
  EXPECT_EQ(code(kDemo + " --ids " + list.Write("[1, 2.5]")), 3);
  EXPECT_EQ(code(kDemo + " --ids " + list.Write("{\"a\": 1}")), 3);
  EXPECT_EQ(code(kDemo + " --ids " + list.Write("[1, ")), 3);
  EXPECT_EQ(code(kDemo + " --ids " + list.path() + " " + text.path()), 2);
  // A model without a tokenizer takes ids only.
  const std::string bare = golden::Path("hf/qwen3_moe").string();
  EXPECT_NE(code(bare + " " + text.path()), 0);
  EXPECT_EQ(code(bare + " --ids " + list.Write("[1, 2, 3]")), 0);
}

}  // namespace
}  // namespace moewe
