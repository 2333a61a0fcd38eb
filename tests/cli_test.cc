// What holds for every verb: help, suggestions, errors as JSON, exit codes, streams that are
// closed, full or not read any more (docs/cli.md, "Conventions").
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "golden.h"
#include "paths.h"
#include "program.h"

namespace moewe {
namespace {

const std::string kDemo = paths::DemoModel();
const std::string kMissing = "/no/such/model";

std::string Golden(const std::string& name) { return golden::Path("cmf/" + name).string(); }

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The verbs that the program's own help lists.
std::vector<std::string> VerbNames() {
  std::vector<std::string> names;
  bool listed = false;
  for (const std::string& line : Lines(RunMoewe("--help").out)) {
    if (listed && line.starts_with("  ") && line[2] != ' ') {
      names.push_back(line.substr(2, line.find(' ', 2) - 2));
    }
    listed = listed || line.starts_with("Verbs");
  }
  return names;
}

// The arguments of the example on a verb's help page.
std::string ExampleOf(const std::string& verb) {
  const std::string help = RunMoewe(verb + " --help").out;
  const size_t begin = help.find("Example: moewe " + verb);
  if (begin == std::string::npos) return "";
  const size_t words = begin + std::string("Example: moewe ").size();
  return help.substr(words, help.find('\n', words) - words);
}

TEST(CliConventions, EveryHelpPageFitsAScreenAndHasAnExample) {
  const std::vector<std::string> verbs = VerbNames();
  EXPECT_GE(verbs.size(), 10u);
  std::vector<std::string> pages = verbs;
  pages.emplace_back("");
  for (const std::string& verb : pages) {
    const Outcome help = RunMoewe(verb + " --help");
    EXPECT_EQ(help.code, 0);
    const std::vector<std::string> lines = Lines(help.out);
    EXPECT_LE(lines.size(), 40u) << verb << " --help";
    EXPECT_GE(lines.size(), 3u) << verb << " --help";
    for (const std::string& line : lines) EXPECT_LE(line.size(), 100u) << line;
    if (!verb.empty()) {
      EXPECT_NE(ExampleOf(verb), "") << verb;
    }
  }
  EXPECT_EQ(RunMoewe("").out, RunMoewe("--help").out);
  EXPECT_TRUE(RunMoewe("--version").out.starts_with("moewe "));
}

// stderr of a command that must be a usage error.
std::string UsageProblem(const std::string& arguments) {
  const Outcome outcome = RunShell("$MOEWE " + arguments + " 2>&1 >/dev/null");
  EXPECT_EQ(outcome.code, 2) << arguments;
  return outcome.out;
}

TEST(CliConventions, UnknownVerbsAndFlagsSuggestTheNearest) {
  const auto suggests = [](const std::string& arguments, const std::string& word) {
    const std::string problem = UsageProblem(arguments);
    EXPECT_NE(problem.find("did you mean '" + word + "'"), std::string::npos) << problem;
  };
  suggests("convrt a b", "convert");
  suggests("tokenise x", "tokenize");
  suggests("info --tensers x", "--tensors");
  suggests("info --tensers", "--tensors");  // rather than that FILE is missing
  suggests("run m -p x --gredy", "--greedy");
  suggests("run m -p x --temperature 0.5", "--temp");
  suggests("run m -p x --top_k=40", "--top-k");
  suggests("run m -p x --jsn", "--json");
  for (const std::string& verb : VerbNames()) suggests(verb + " --qiet", "--quiet");
  const std::string far = UsageProblem("xylophone");
  EXPECT_EQ(far.find("did you mean"), std::string::npos) << far;
  EXPECT_NE(far.find("xylophone"), std::string::npos);
}

void ExpectErrorJson(const Outcome& outcome, const std::string& code, int exit_code) {
  EXPECT_EQ(outcome.code, exit_code);
  ASSERT_NE(outcome.out, "");
  const nlohmann::json json = outcome.json();
  ASSERT_EQ(json.size(), 1u) << json;
  const nlohmann::json& error = json.at("error");
  EXPECT_EQ(error.at("code"), code);
  EXPECT_NE(error.at("message"), "");
  EXPECT_TRUE(error.at("where").is_string());
}

TEST(CliConventions, ErrorsOfEveryVerbAreJson) {
  size_t with_model = 0;
  for (const std::string& verb : VerbNames()) {
    SCOPED_TRACE(verb);
    ExpectErrorJson(RunMoewe(verb + " --json --no-such-flag-at-all"), "Usage", 2);
    // Its example with a model that is not there.
    std::string example = ExampleOf(verb);
    size_t found = 0;
    for (const std::string word : {"models/demo", "demo.cmf"}) {
      if (found > 0) break;
      const size_t at = example.find(word);
      if (at == std::string::npos) continue;
      example.replace(at, word.size(), kMissing);
      ++found;
    }
    if (found == 0) continue;
    ++with_model;
    const Outcome outcome = RunMoewe(example + " --json");
    ExpectErrorJson(outcome, "NotFound", 1);
    EXPECT_NE(outcome.json()["error"]["where"], "");
  }
  EXPECT_GE(with_model, 9u);
}

// docs/cli.md's table of exit codes, by a cause each.
TEST(CliConventions, ExitCodesAreThoseOfTheTable) {
  const ScratchFolder scratch;
  const std::string q8 = Golden("files/dense_qwen3_q8.cmf");
  const std::string folder = scratch.At("no_weights");
  const std::string config = R"({"model_type": "llama", "hidden_size": 8, "num_hidden_layers": 1,
    "num_attention_heads": 1, "intermediate_size": 8, "vocab_size": 4})";
  scratch.Put("no_weights/config.json", config);
  const std::string header = "{}      ";
  scratch.Put("no_weights/model.safetensors", std::string("\x08\0\0\0\0\0\0\0", 8) + header);
  struct Case {
    std::string arguments, code;
    int exit_code;
  };
  const std::vector<Case> cases = {
      {"info " + kMissing, "NotFound", 1},
      {"dequant " + q8 + " --tensor lm_head.weight --out /dev/null/x", "NotFound", 1},
      {"info " + scratch.At("no_weights/.."), "NotFound", 1},  // a folder without config.json
      {"tokenize " + kDemo, "Usage", 2},
      {"run " + kDemo + " -p x --temp warm", "Usage", 2},
      {"dequant " + q8 + " --tensor nope --out -", "UnknownName", 2},
      {"run " + kDemo + " -p x --task nobody", "UnknownName", 2},
      {"info " + scratch.Put("garbage", "no model at all, whatever it says"), "InvalidMagic", 3},
      {"info " + Golden("bad/version_3.cmf"), "UnsupportedVersion", 3},
      {"info " + scratch.Put("empty", ""), "Bounds", 3},
      {"logits " + folder + " --ids 1 --out /dev/null", "MissingTensor", 3},
      {"info " + Golden("bad/flip_vocab.cmf"), "HashMismatch", 3},
      {"info " + scratch.Put("x.gguf", "GGUF\x03..............................."), "Unsupported",
       3},
      {"run " + kDemo + " -p x --memory 1MB", "OutOfBudget", 4},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.arguments);
    ExpectErrorJson(RunMoewe(c.arguments + " --json"), c.code, c.exit_code);
  }
  // And by the corrupt files of the golden set, which name their error each.
  const nlohmann::json bad = golden::ReadJson(Golden("bad/expected.json"));
  std::map<std::string, int> seen;
  for (const nlohmann::json& c : bad["cases"]) {
    if (c["action"] != "open" || c["expect"] != "fail") continue;
    const std::string code = c["spec_error"];
    if (code == "Hash" || ++seen[code] > 1) continue;
    SCOPED_TRACE(c["name"]);
    ExpectErrorJson(RunMoewe("info --json " + Golden("bad/" + c["open"].get<std::string>())), code,
                    3);
  }
  EXPECT_GE(seen.size(), 4u);
}

// Whoever reads the output may stop early: no message, no core dump.
TEST(CliConventions, AReaderThatStopsIsNoFault) {
  for (const std::string& arguments :
       {"info --tensors " + kDemo, std::string("families"), std::string("--help")}) {
    const Outcome outcome =
        RunShell("{ (sleep 0.1; $MOEWE " + arguments + ") | true; } 2>&1 >/dev/null");
    EXPECT_EQ(outcome.out, "") << arguments;
  }
  EXPECT_EQ(RunShell("$MOEWE info --tensors " + kDemo + " | head -n 1 | wc -l").out.find('1'), 0u);
}

TEST(CliConventions, OutputThatIsLostIsAnError) {
  const ScratchFolder scratch;
  const std::string messages = scratch.Put("m.json", R"([{"role": "user", "content": "Hi"}])");
  const std::string batch = scratch.Put("b.jsonl", "{\"text\": \"Hello\"}\n");
  const std::string chats = scratch.Put("c.jsonl", R"({"messages": []})");
  const std::string q8 = Golden("files/dense_qwen3_q8.cmf");
  for (const std::string& arguments :
       {std::string("--help"), std::string("--version"), std::string("families"),
        std::string("families --json"), "info " + kDemo, "info --json " + kDemo,
        "info --tensors " + kDemo, "info --header " + q8, "verify " + q8, "verify --json " + q8,
        "tokenize " + kDemo + " -p Hello", "tokenize " + kDemo + " --batch " + batch,
        "detokenize " + kDemo + " --ids 1,2", "template " + kDemo + " --messages " + messages,
        "template " + kDemo + " --batch " + chats,
        "dequant " + q8 + " --tensor model.norm.weight --out -",
        "run " + kDemo + " --greedy -n 1 -p Hello", "run " + kDemo + " --json -n 1 -p Hello"}) {
    for (const char* lost : {">/dev/full", ">&-"}) {
      const Outcome outcome = RunShell("$MOEWE " + arguments + " --quiet 2>&1 " + lost);
      EXPECT_EQ(outcome.code, 1) << arguments << " " << lost;
    }
  }
}

// A file that a command opens must not become what the shell closed.
TEST(CliConventions, ClosedStreamsDoNotReachFiles) {
  const ScratchFolder scratch;
  const std::string q8 = Golden("files/dense_qwen3_q8.cmf");
  const std::string command = "$MOEWE dequant " + q8 + " --tensor model.norm.weight --out ";
  ASSERT_EQ(RunShell(command + scratch.At("usual")).code, 0);
  ASSERT_EQ(RunShell(command + scratch.At("closed") + " <&- >&- 2>&-").code, 0);
  EXPECT_EQ(golden::ReadBytes(scratch.At("closed")), golden::ReadBytes(scratch.At("usual")));
}

TEST(CliConventions, DashIsStdin) {
  EXPECT_EQ(RunShell("printf 'Hello there' | $MOEWE tokenize " + kDemo + " -f -").out,
            RunMoewe("tokenize " + kDemo + " -p 'Hello there'").out);
  const std::string chat = R"([{"role": "user", "content": "Hi"}])";
  const std::string rendered =
      RunShell("echo '" + chat + "' | $MOEWE template " + kDemo + " --messages -").out;
  EXPECT_NE(rendered.find("Hi"), std::string::npos);
  EXPECT_EQ(
      RunShell("echo '{\"messages\": " + chat + "}' | $MOEWE template " + kDemo + " --batch -")
          .json()["output"],
      rendered);
  EXPECT_EQ(RunShell("echo '{\"text\": \"Hello\"}' | $MOEWE tokenize " + kDemo + " --batch -")
                .json()["ids"],
            RunMoewe("tokenize --json " + kDemo + " -p Hello").json()["ids"]);
  const std::string question = "What is the capital of France?";
  EXPECT_EQ(
      RunShell("printf '" + question + "' | $MOEWE run " + kDemo + " --greedy -n 3 --quiet -f -")
          .out,
      RunMoewe("run " + kDemo + " --greedy -n 3 -p '" + question + "'").out);
}

}  // namespace
}  // namespace moewe
