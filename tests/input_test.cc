// What users type and hand in: numbers out of range, texts without end, texts that are none, and
// Ctrl-C while a text is waited for.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "golden.h"
#include "process.h"
#include "program.h"

namespace moewe {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const std::string kDemo = paths::DemoModel();

std::string Golden(const std::string& name) { return golden::Path("cmf/files/" + name).string(); }

// The error of a command that must fail.
Json ErrorOf(const std::string& arguments, int code) {
  const Outcome outcome = RunMoewe(arguments + " --json");
  EXPECT_EQ(outcome.code, code) << arguments;
  if (outcome.out.empty()) return {{"message", ""}, {"where", ""}, {"code", ""}};
  return outcome.json().at("error");
}

TEST(Numbers, OutOfRangeIsAnErrorThatNamesTheFlag) {
  const std::string run = "run " + kDemo + " --raw -n 2 -p x ";
  const std::string convert = "convert " + kDemo + " /no/such/place/x.cmf ";
  const struct {
    std::string command, flag;
    std::vector<std::string> values;
  } cases[] = {
      {run, "--temp", {"nan", "inf", "-0.5", "1e9", "1,5", "0.5x", "''", "' 1'"}},
      {run, "--top-p", {"nan", "1.1", "-1"}},
      {run, "--min-p", {"nan", "2"}},
      {run, "--repeat-penalty", {"nan", "0", "-1"}},
      {run, "--presence-penalty", {"nan", "inf"}},
      {run, "--frequency-penalty", {"-inf", "x"}},
      {run, "--top-k", {"-1", "1.5", "99999999999"}},
      {run, "--seed", {"-1", "18446744073709551616", "0x10", "1.0"}},
      {run, "--threads", {"-1", "1025", "two"}},
      {run, "--ctx", {"-1", "0", "1e3"}},
      {run, "--chunk", {"0", "-1"}},
      {"run " + kDemo + " -p x ", "-n", {"-1", "5000000000"}},
      {run, "--logit-bias", {"3", "=1", "3=", "3=nan", "3=inf", "1,2=3", "-1=2", "x=1"}},
      {convert, "--keep", {"nan", "0.3", "-0.1"}},
      {convert, "--mean-bits", {"nan", "inf", "2.9", "8.5"}},
      {convert, "--threads", {"-4", "1025"}},
      {convert, "--shard-max", {"0", "0kB"}},
      {"verify " + Golden("dense_qwen3_q8.cmf") + " ", "--threads", {"-1", "1025"}},
      {"ppl " + kDemo + " x ", "--window", {"1", "-1", "nan"}},
      {"bench " + kDemo + " ", "-r", {"0", "-1", "1.5"}},
      {"skill route m ", "--skill-blend", {"nan", "0", "-1", "inf"}},
      {"experts mask a b --stats s --name n ", "--cover", {"nan", "1.5", "-1"}},
  };
  for (const auto& c : cases) {
    for (const std::string& value : c.values) {
      const std::string arguments = c.command + c.flag + "=" + value;
      const std::string spaced = c.command + c.flag + " " + value;
      const Json error = ErrorOf(c.flag == "-n" || c.flag == "-r" ? spaced : arguments, 2);
      EXPECT_EQ(error["code"], "Usage") << arguments;
      EXPECT_EQ(error["where"], c.flag) << arguments << ": " << error;
    }
  }
  // The ends of ranges are in them.
  for (const char* flags :
       {"--temp 0", "--temp 100 --top-p 1 --min-p 0", "--seed 18446744073709551615", "--threads 0",
        "--seed 0 --top-p 0", "--logit-bias 3=-inf --logit-bias 4=1e2"}) {
    EXPECT_EQ(RunMoewe(run + flags).code, 0) << flags;
  }
  EXPECT_EQ(RunMoewe(run + "--seed 18446744073709551615 --json").json()["seed"], UINT64_MAX);
}

// Smaller than a tensor: the files are larger, and that is said.
TEST(Numbers, ShardsThatCannotBeSoSmallAreTold) {
  const ScratchFolder scratch;
  const std::string command =
      "$MOEWE shard " + Golden("dense_qwen3_q8.cmf") + " " + scratch.At("s.cmf") + " --max ";
  EXPECT_NE(RunShell(command + "20000 2>&1 >/dev/null").out.find("larger than"), std::string::npos);
  EXPECT_EQ(RunShell(command + "20000 --quiet 2>&1 >/dev/null").out, "");
  EXPECT_EQ(RunShell(command + "1MB 2>&1 >/dev/null").out.find("larger than"), std::string::npos);
}

TEST(Texts, OneWithoutEndIsAnError) {
  const ScratchFolder scratch;
  for (const std::string& arguments :
       {"run " + kDemo + " -f /dev/zero", "tokenize " + kDemo + " -f /dev/zero",
        "ppl " + kDemo + " /dev/zero", "template " + kDemo + " --messages /dev/zero",
        "experts stats " + kDemo + " /dev/zero --out " + scratch.At("s.json")}) {
    const Json error = ErrorOf(arguments, 3);
    EXPECT_EQ(error["code"], "Bounds") << arguments;
    EXPECT_EQ(error["where"], "/dev/zero") << arguments;
  }
  // A line without end, too.
  for (const std::string& verb : {"tokenize " + kDemo, "template " + kDemo}) {
    const Json error = ErrorOf(verb + " --batch /dev/zero", 3);
    EXPECT_EQ(error["code"], "Bounds") << verb;
    EXPECT_EQ(error["where"], "/dev/zero") << verb;
  }
}

// One rule, whoever hands the text in: Usage, with the place.
TEST(Texts, WhatIsNotUtf8IsAnError) {
  const ScratchFolder scratch;
  const std::string file = scratch.Put("text",
                                       "ab\xff"
                                       "cd");
  const std::string bad = "\"$(printf 'ab\\377cd')\"";
  const std::string run = "run " + kDemo + " -n 1 ";
  const struct {
    std::string arguments, where;
  } cases[] = {
      {run + "-p " + bad, "-p at offset 2"},
      {run + "--raw -p " + bad, "-p at offset 2"},
      {run + "-f " + file, file + " at offset 2"},
      {run + "--raw -f " + file, file + " at offset 2"},
      {run + "-p x --system " + bad, "--system at offset 2"},
      {run + "-p x --stop " + bad, "--stop at offset 2"},
      {"chat " + kDemo + " --system " + bad + " </dev/null", "--system at offset 2"},
      {"tokenize " + kDemo + " -p " + bad, "-p at offset 2"},
      {"tokenize " + kDemo + " -f " + file, file + " at offset 2"},
      {"tokenize " + kDemo + " -p x --pair " + bad, "--pair at offset 2"},
      {"ppl " + kDemo + " " + file, file + " at offset 2"},
      {"experts stats " + kDemo + " " + file + " --out -", file + " at offset 2"},
  };
  for (const auto& c : cases) {
    const Json error = ErrorOf(c.arguments, 2);
    EXPECT_EQ(error["code"], "Usage") << c.arguments;
    EXPECT_EQ(error["where"], c.where) << c.arguments;
  }
  // A message of a conversation: said, and the conversation goes on.
  const Outcome chat =
      RunShell("printf 'ab\\377cd\\nHi\\n' | $MOEWE chat --json -n 2 --greedy " + kDemo);
  EXPECT_EQ(chat.code, 2);
  ASSERT_EQ(chat.json()["answers"].size(), 2u);
  EXPECT_EQ(chat.json()["answers"][0]["error"]["code"], "Usage");
  EXPECT_TRUE(chat.json()["answers"][1].contains("text"));
}

TEST(Texts, AnEmptyPromptIsAPrompt) {
  EXPECT_EQ(RunMoewe("run " + kDemo + " -n 2 --greedy -p ''").code, 0);
  // Nothing is in front of it, so there is nothing to go on from; that is said.
  const Json error = ErrorOf("run " + kDemo + " --raw -n 2 -p ''", 2);
  EXPECT_NE(error["message"].get<std::string>().find("no tokens"), std::string::npos) << error;
  const Json none = ErrorOf("run " + kDemo, 2);
  EXPECT_NE(none["message"].get<std::string>().find("-p"), std::string::npos) << none;
}

// A line that is no request gets an answer of its own, and those around it theirs.
TEST(Batches, EveryLineHasOneAnswer) {
  const ScratchFolder scratch;
  const std::string tokens =
      scratch.Put("t.jsonl", "{\"text\": \"a\"}\nnonsense\n\n{\"ids\": [1]}");
  const std::string chats = scratch.Put(
      "c.jsonl",
      "{\"template\": \"x\", \"context\": {}}\n[]\n{\"template\": \"y\", \"context\": {}}\n");
  for (const std::string& command :
       {"tokenize " + kDemo + " --batch " + tokens, "template " + kDemo + " --batch " + chats}) {
    for (const char* flags : {"", " --json"}) {
      const Outcome outcome = RunMoewe(command + flags);
      EXPECT_EQ(outcome.code, 3) << command;
      std::istringstream in(outcome.out);
      std::vector<Json> answers;
      for (std::string line; std::getline(in, line);) answers.push_back(Json::parse(line));
      ASSERT_EQ(answers.size(), 3u) << outcome.out;
      EXPECT_FALSE(answers[0].contains("error"));
      EXPECT_EQ(answers[1]["error"]["code"], "Parse");
      EXPECT_NE(answers[1]["error"]["where"].get<std::string>().find("line 2"), std::string::npos);
      EXPECT_FALSE(answers[2].contains("error"));
    }
  }
}

TEST(Names, OfMasksAreLines) {
  const ScratchFolder scratch;
  const std::string file = scratch.At("m.cmf");
  fs::copy_file(Golden("masks_llama_f32.cmf"), file);
  const auto before = golden::ReadBytes(file);
  for (const char* name : {"''", "\"$(printf 'a\\377')\"", "\"$(printf 'a\\nb')\"",
                           "\"$(printf 'a\\033[1m')\"", "\"$(printf 'a\\302\\205')\"", "none"}) {
    EXPECT_EQ(ErrorOf("mask add " + file + " --name " + name, 2)["code"], "Usage") << name;
  }
  EXPECT_EQ(
      ErrorOf("mask add " + file + " --name a --description \"$(printf 'x\\001')\"", 2)["code"],
      "Usage");
  EXPECT_EQ(golden::ReadBytes(file), before);
  EXPECT_EQ(RunMoewe("mask add " + file + " --name 'für Code'").code, 0);
}

// Errors of paths name them.
TEST(Paths, ThatCannotBeLookedAtAreNamed) {
  const ScratchFolder scratch;
  const std::string loop = scratch.At("loop");
  fs::create_symlink("loop", loop);
  for (const std::string& arguments :
       {"info " + loop, "verify " + loop, "run -p x " + loop, "mask list " + loop,
        "tokenize -p x " + loop, "diff " + loop + " x"}) {
    const Json error = ErrorOf(arguments, 1);
    EXPECT_EQ(error["code"], "Io") << arguments;
    EXPECT_EQ(error["where"], loop) << arguments;
  }
}

TEST(Help, VerbsOfVerbsShowTheirOwnExample) {
  size_t seen = 0;
  for (const std::string verb : {"mask", "experts", "skill"}) {
    const std::string page = RunMoewe(verb + " --help").out;
    EXPECT_NE(page.find("moewe " + verb + " VERB --help"), std::string::npos) << page;
    std::istringstream lines(page.substr(page.find("\nVerbs (") + 1));
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line) && line.starts_with("  ")) {
      if (line[2] == ' ') continue;  // a summary goes on
      const std::string name = verb + " " + line.substr(2, line.find(' ', 2) - 2);
      const std::string help = RunMoewe(name + " --help").out;
      EXPECT_NE(help.find("\nExample: moewe " + name + " "), std::string::npos) << help;
      ++seen;
    }
  }
  EXPECT_GE(seen, 8u);
}

TEST(Quiet, SilencesNotesAndWarnings) {
  const std::string file = Golden("masks_llama_f32.cmf");
  const std::string run = "$MOEWE run " + file + " --ids 1,2 -n 1 --greedy ";
  // The file has a default task, which is said.
  EXPECT_NE(RunShell(run + "2>&1 >/dev/null").out, "");
  EXPECT_EQ(RunShell(run + "--quiet 2>&1 >/dev/null").out, "");
  EXPECT_NE(RunShell("$MOEWE run /no/such/file -p x --quiet 2>&1 >/dev/null").out, "");
}

TEST(Verify, SaysThatAShardIsCheckedAlone) {
  const std::string second = Golden("sharded-00002-of-00003.cmf");
  const Json report = RunMoewe("verify --json " + second).json();
  EXPECT_EQ(report["ok"], true);
  EXPECT_EQ(report["shard"], (Json{{"no", 2}, {"count", 3}}));
  EXPECT_EQ(report["siblings_checked"], false);
  EXPECT_NE(RunMoewe("verify " + second).out.find("shard 2 of 3, checked alone"),
            std::string::npos);
  EXPECT_FALSE(RunMoewe("verify --json " + Golden("dense_qwen3_q8.cmf")).json().contains("shard"));
  // Also with no sibling there.
  const ScratchFolder scratch;
  fs::copy_file(second, scratch.At("x.cmf"));
  EXPECT_EQ(RunMoewe("verify " + scratch.At("x.cmf")).code, 0);
}

// A pipe that nobody writes to: Ctrl-C ends the wait.
TEST(Interrupts, EndTheWaitForAText) {
  const ScratchFolder scratch;
  const std::string pipe = scratch.At("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int keep_open = open(pipe.c_str(), O_RDWR);
  ASSERT_GE(keep_open, 0);
  // The first text is counted, then the pipe is waited for.
  Process process({"experts", "stats", kDemo, scratch.Put("first", "Once upon a time"), pipe,
                   "--out", scratch.At("s.json")},
                  Process::Via::kTerminal);
  process.ReadUntil(" tokens");
  process.Interrupt();
  EXPECT_EQ(process.Wait(), 130);
  close(keep_open);
  EXPECT_FALSE(fs::exists(scratch.At("s.json")));
}

}  // namespace
}  // namespace moewe
