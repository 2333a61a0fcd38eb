// moewe ppl on the demonstration model: files, ids, mistakes.
#include <gtest/gtest.h>

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
