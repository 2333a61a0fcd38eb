// tokenize and detokenize as a script uses them.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "golden.h"
#include "paths.h"
#include "program.h"

namespace moewe {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kDemo = paths::DemoModel();

std::string Mini(const std::string& name) { return golden::Path("text/mini/" + name).string(); }

std::vector<json> ReadLines(std::istream& in) {
  std::vector<json> lines;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty()) lines.push_back(json::parse(line));
  }
  return lines;
}

// The answers to a batch, one a request.
std::vector<json> Batch(const ScratchFolder& scratch, const std::string& arguments,
                        const std::vector<json>& requests) {
  std::string text;
  for (const json& request : requests) text += request.dump() + "\n";
  const Outcome outcome = RunMoewe(arguments + " --batch " + scratch.Put("requests.jsonl", text));
  EXPECT_EQ(outcome.code, 0) << arguments;
  std::istringstream in(outcome.out);
  std::vector<json> answers = ReadLines(in);
  EXPECT_EQ(answers.size(), requests.size()) << arguments;
  answers.resize(requests.size());
  return answers;
}

// Both directions of every small tokenizer, with and without special tokens, through the program.
TEST(TokenizeVerb, BatchesMatchTheGoldens) {
  const ScratchFolder scratch;
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(golden::Path("text/mini"))) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".cases.jsonl")) continue;
    ++files;
    SCOPED_TRACE(name);
    const std::string model = Mini(name.substr(0, name.find(".cases")) + ".json");
    std::ifstream in(entry.path());
    std::vector<json> texts, ids, cases;
    for (json& c : ReadLines(in)) {
      if (c.contains("library_panics")) continue;
      json request = {{"text", c.value("text", "")}};
      if (c.contains("pair")) {
        request["pair"] = c["pair"].is_string() ? c["pair"] : c["pair"]["text"];
      }
      texts.push_back(request);
      ids.push_back({{"ids", c["ids"]}});
      cases.push_back(std::move(c));
    }
    const auto decoded = Batch(scratch, "detokenize " + model, ids);
    const auto skipped = Batch(scratch, "detokenize " + model + " --skip-special", ids);
    for (size_t i = 0; i < cases.size(); ++i) {
      EXPECT_EQ(decoded[i]["text"], cases[i]["decoded"]) << cases[i]["id"];
      EXPECT_EQ(skipped[i]["text"], cases[i]["decoded_skip_special"]) << cases[i]["id"];
    }
    if (!cases[0].contains("text")) continue;
    const auto special = Batch(scratch, "tokenize --special " + model, texts);
    for (json& request : texts) request.erase("pair");
    const auto plain = Batch(scratch, "tokenize " + model, texts);
    for (size_t i = 0; i < cases.size(); ++i) {
      const json& pair = cases[i].contains("pair") ? cases[i]["pair"] : json();
      EXPECT_EQ(special[i]["ids"], pair.is_object() ? pair["ids"] : cases[i]["ids"])
          << cases[i]["id"];
      EXPECT_EQ(plain[i]["ids"], cases[i]["ids_no_special"]) << cases[i]["id"];
    }
  }
  EXPECT_GE(files, 100u);
}

TEST(TokenizeVerb, OneTextPlainPairAndSpecial) {
  const std::string bert = Mini("post_template.json");
  const json lone = RunMoewe("tokenize --json --special " + bert + " -p ''").json();
  EXPECT_EQ(lone["ids"], json({1, 2}));
  EXPECT_EQ(lone["tokens"], json({"<s>", "</s>"}));
  EXPECT_EQ(RunMoewe("tokenize --special " + bert + " -p ''").out, "1,2\n");
  EXPECT_EQ(RunMoewe("tokenize " + bert + " -p ''").out, "\n");
  std::ifstream in(Mini("post_template.cases.jsonl"));
  const json c = ReadLines(in).at(1);
  ASSERT_TRUE(c["pair"].is_object());
  const ScratchFolder scratch;
  EXPECT_EQ(RunMoewe("tokenize --json --special " + bert + " -f " +
                     scratch.Put("a", c["text"].get<std::string>()) + " --pair '" +
                     c["pair"]["text"].get<std::string>() + "'")
                .json()["ids"],
            c["pair"]["ids"]);
}

// Special tokens that are written in the text are one id each, and come back as text.
TEST(TokenizeVerb, SpecialTokensInTheText) {
  const std::string text = "<|im_start|>user\nHi<|im_end|>";
  const json ids = RunMoewe("tokenize --json " + kDemo + " -p '" + text + "'").json()["ids"];
  EXPECT_EQ(ids.front(), 4094);
  EXPECT_EQ(ids.back(), 4095);
  std::string list;
  for (const json& id : ids) list += (list.empty() ? "" : ",") + id.dump();
  EXPECT_EQ(RunMoewe("tokenize " + kDemo + " -p '" + text + "'").out, list + "\n");
  EXPECT_EQ(RunMoewe("detokenize " + kDemo + " --ids " + list).out, text + "\n");
  EXPECT_EQ(RunMoewe("detokenize --skip-special " + kDemo + " --ids ' " + list + "'").out,
            "user\nHi\n");
  EXPECT_EQ(RunMoewe("detokenize --json " + kDemo + " --ids " + list).json()["text"], text);
}

TEST(TokenizeVerb, AnyContainerOfATokenizer) {
  const ScratchFolder scratch;
  fs::create_directories(scratch.At("just"));
  fs::copy_file(kDemo + "/tokenizer.json", scratch.At("just/tokenizer.json"));
  const std::string text = " -p 'Once upon a time, in 1999.'";
  const std::string expected = RunMoewe("tokenize " + kDemo + text).out;
  ASSERT_GT(expected.size(), 10u);
  EXPECT_EQ(RunMoewe("tokenize " + scratch.At("just") + text).out, expected);
  EXPECT_EQ(RunMoewe("tokenize " + scratch.At("just/tokenizer.json") + text).out, expected);
  ASSERT_EQ(
      RunMoewe("convert --quiet " + kDemo + " " + scratch.At("demo.cmf") + " --quant q4").code, 0);
  EXPECT_EQ(RunMoewe("tokenize " + scratch.At("demo.cmf") + text).out, expected);
  // The name says nothing.
  fs::rename(scratch.At("demo.cmf"), scratch.At("demo.json"));
  EXPECT_EQ(RunMoewe("tokenize " + scratch.At("demo.json") + text).out, expected);
  const std::string none = golden::Path("cmf/families/gemma.cmf").string();
  EXPECT_EQ(RunMoewe("tokenize --json " + none + text).json()["error"]["code"], "NotFound");
}

TEST(TokenizeVerb, MistakesAreNamed) {
  const ScratchFolder scratch;
  const auto code = [](const std::string& arguments) {
    return RunMoewe(arguments + " --json").json()["error"]["code"].get<std::string>();
  };
  EXPECT_EQ(code("tokenize " + kDemo), "Usage");
  EXPECT_EQ(code("tokenize " + kDemo + " -p a -f b"), "Usage");
  EXPECT_EQ(code("detokenize " + kDemo + " --ids 1,x"), "Usage");
  EXPECT_EQ(code("detokenize " + kDemo + " --ids 1,,2"), "Usage");
  EXPECT_EQ(code("detokenize " + kDemo + " --ids 99999"), "Usage");
  EXPECT_EQ(code("detokenize " + kDemo + " --ids 99999999999999"), "Usage");
  EXPECT_EQ(code("detokenize " + kDemo + " --ids=-1"), "Usage");
  EXPECT_EQ(code("tokenize " + kDemo + " -p \"$(printf '\\377')\""), "Usage");
  EXPECT_EQ(code("tokenize " + scratch.Put("tokenizer.json", "{\"model\": 1}") + " -p x"), "Parse");
  EXPECT_EQ(code("tokenize " + kDemo + " -f " + scratch.At("none")), "NotFound");
  for (const char* line :
       {"{\"text\": 1}", "{\"ids\": [1.5]}", "{\"ids\": [-1]}", "{}", "[]", "{"}) {
    const Outcome outcome =
        RunMoewe("tokenize --json " + kDemo + " --batch " +
                 scratch.Put("b.jsonl", std::string("{\"ids\": [1]}\n") + line));
    EXPECT_EQ(outcome.code, 3) << line;
    EXPECT_NE(outcome.out.find("line 2"), std::string::npos) << outcome.out;
  }
  // What only the tokenizer can refuse is the answer of its line; the others are answered.
  const auto answers =
      Batch(scratch, "detokenize " + kDemo, {{{"ids", {1}}}, {{"ids", {99999}}}, {{"ids", {2}}}});
  EXPECT_TRUE(answers[0].contains("text"));
  EXPECT_EQ(answers[1]["error"]["code"], "Usage");
  EXPECT_TRUE(answers[2].contains("text"));
}

}  // namespace
}  // namespace moewe
