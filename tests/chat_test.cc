// moewe chat, through a pipe and on a terminal.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "process.h"
#include "program.h"

namespace moewe {
namespace {

const std::string kDemo = paths::DemoModel();
const std::string kQuestion = "What is the capital of France?";
const std::string kReply = "The capital of France is Paris.";

std::string Typed(const std::string& input, const std::string& model = kDemo,
                  const std::vector<std::string>& flags = {}, int* code = nullptr) {
  std::vector<std::string> arguments = {"chat", model, "--greedy", "--activations", "f32"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  Process chat(arguments, Process::Via::kPipes);
  chat.Write(input);
  chat.CloseInput();
  const std::string output = chat.ReadAll();
  const int exit_code = chat.Wait();
  if (code != nullptr) {
    *code = exit_code;
  } else {
    EXPECT_EQ(exit_code, 0);
  }
  return output;
}

TEST(ChatVerb, ThroughAPipeOnlyAnswersComeOut) {
  EXPECT_EQ(Typed(kQuestion + "\n"), kReply + "\n");
  EXPECT_EQ(Typed(kQuestion), kReply + "\n");  // no newline at the end
  EXPECT_EQ(Typed(kQuestion + "\n/again\n/exit\n" + kQuestion + "\n"),
            kReply + "\n" + kReply + "\n");
  EXPECT_EQ(Typed(""), "");
}

TEST(ChatVerb, LaterTurnsComputeOnlyWhatIsNew) {
  const auto json = nlohmann::json::parse(
      Typed(kQuestion + "\nWhat is the capital of Italy?\n", kDemo, {"--json"}));
  ASSERT_EQ(json["answers"].size(), 2u);
  const auto& first = json["answers"][0];
  EXPECT_EQ(first["text"], kReply);
  EXPECT_EQ(first["cache"]["reused_tokens"], 0);
  EXPECT_EQ(json["answers"][1]["cache"]["reused_tokens"],
            first["usage"]["prompt_tokens"].get<size_t>() + first["ids"].size());
}

std::vector<std::string> Contents(const std::string& input) {
  const auto json = nlohmann::json::parse(Typed(input, kDemo, {"--json", "-n", "3"}));
  std::vector<std::string> contents;
  for (const auto& message : json["messages"]) {
    if (message["role"] != "assistant") {
      contents.push_back(message["role"].get<std::string>() + ": " +
                         message["content"].get<std::string>());
    }
  }
  return contents;
}

TEST(ChatVerb, SeveralLinesAndCommands) {
  using List = std::vector<std::string>;
  EXPECT_EQ(Contents("\"\"\"one\ntwo\"\"\"\n"), List{"user: one\ntwo"});
  EXPECT_EQ(Contents("\"\"\"\none\n\n/help\n\"\"\"\n"), List{"user: one\n\n/help"});
  EXPECT_EQ(Contents("one\\\ntwo\\\n\n"), List{"user: one\ntwo\n"});
  EXPECT_EQ(Contents("//etc\n"), List{"user: /etc"});
  EXPECT_EQ(Contents("one\ntwo\n/undo\n"), List{"user: one"});
  EXPECT_EQ(Contents("one\n/undo\n/undo\n"), List{});
  EXPECT_EQ(Contents("/system Be brief.\none\n/clear\ntwo\n"),
            (List{"system: Be brief.", "user: two"}));
  EXPECT_EQ(Contents("/system Be brief.\none\n/system\n"), List{"user: one"});
  EXPECT_EQ(Contents("/nonsense\n\n   \n/help\n/stats\none\n"), List{"user: one"});
}

TEST(ChatVerb, AMessageThatDoesNotFitIsAnErrorOfThatMessage) {
  std::string flood;
  for (int i = 0; i < 1200; ++i) flood += "word ";
  int code = 0;
  EXPECT_EQ(Typed(flood + "\n" + kQuestion + "\n", kDemo, {}, &code), kReply + "\n");
  EXPECT_EQ(code, 2);
}

TEST(ChatVerb, AModelWithoutATemplateGetsChatMl) {
  namespace fs = std::filesystem;
  const ScratchFolder scratch;
  for (const char* name :
       {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}) {
    fs::create_symlink(fs::path(kDemo) / name, scratch.At(name));
  }
  EXPECT_EQ(Typed(kQuestion + "\n", scratch.At("")), kReply + "\n");
  // As `run` says, it completes such a model's text plainly.
  const auto run = RunMoewe("run " + scratch.At("") + " --json --greedy -n 1 -p 'Hello there'");
  const auto raw = RunMoewe("run " + kDemo + " --json --greedy -n 1 --raw -p 'Hello there'");
  EXPECT_EQ(run.json()["ids"], raw.json()["ids"]);
  EXPECT_EQ(run.json()["usage"], raw.json()["usage"]);
}

TEST(ChatVerb, CtrlCStopsTheAnswerAndTwiceAtThePromptLeaves) {
  Process chat({"chat", kDemo, "--greedy", "--ignore-eos", "--activations", "f32"},
               Process::Via::kTerminal);
  EXPECT_NE(chat.ReadUntil("> ").find("/help"), std::string::npos);
  chat.Write("Tell me a story.\n");
  chat.ReadUntil("story.\r\n");  // the terminal's echo
  chat.ReadUntil(" ");           // the answer has begun
  chat.Write("\x03");
  EXPECT_TRUE(chat.ReadUntil("\n> ").ends_with("\n> "));
  chat.Write("/stats\n");
  EXPECT_NE(chat.ReadUntil("\n> ").find("2 messages"), std::string::npos);
  chat.Write("\x03");
  EXPECT_NE(chat.ReadUntil("> ").find("Ctrl-C again"), std::string::npos);
  chat.Write("/clear\n");  // something else in between: the count begins anew
  chat.ReadUntil("> ");
  chat.Write("\x03");
  EXPECT_NE(chat.ReadUntil("> ").find("Ctrl-C again"), std::string::npos);
  chat.Write("\x03");
  chat.ReadAll();
  EXPECT_EQ(chat.Wait(), 130);
}

TEST(ChatVerb, EndOfInputOnATerminalLeaves) {
  Process chat({"chat", kDemo, "--greedy", "--activations", "f32"}, Process::Via::kTerminal);
  chat.ReadUntil("> ");
  chat.Write(kQuestion + "\n");
  EXPECT_NE(chat.ReadUntil("\n> ").find(kReply), std::string::npos);
  chat.Write("\x04");
  chat.ReadAll();
  EXPECT_EQ(chat.Wait(), 0);
}

TEST(ChatVerb, CtrlCBesideAPipeStopsTheAnswerOnly) {
  Process chat({"chat", kDemo, "--greedy", "--ignore-eos", "-n", "600", "--activations", "f32"},
               Process::Via::kPipes);
  chat.Write("Tell me a story.\n");
  const std::string beginning = chat.ReadUntil(" ");
  chat.Interrupt();
  chat.Write("/exit\n");
  const std::string rest = chat.ReadAll();
  EXPECT_TRUE(rest.ends_with("\n"));
  EXPECT_LT(rest.size(), 2000u);  // 600 tokens would be more
  EXPECT_EQ(chat.Wait(), 0);
}

}  // namespace
}  // namespace moewe
