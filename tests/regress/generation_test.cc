// Public faults of answering: stop strings that leak, end tokens that are one of several, seeds and
// penalties without effect, prompts as long as the context, a BOS that came twice.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "golden.h"
#include "paths.h"
#include "program.h"
#include "tiny_model.h"

namespace moewe {
namespace {

using nlohmann::json;

const std::string kDemo = paths::DemoModel();
const std::string kQuestion = " -p 'What is the capital of France?'";

json RunJson(const std::string& arguments) {
  const Outcome outcome = RunMoewe("run --json --activations f32 " + arguments);
  EXPECT_EQ(outcome.code, 0) << arguments;
  return outcome.json();
}

// The beginning of a stop string was shown when its end came with a later token.
TEST(PublicFaults, StopStringsLeaveNothingBehind) {
  const std::string whole = RunJson(kDemo + " --greedy" + kQuestion)["text"];
  ASSERT_EQ(whole, "The capital of France is Paris.");
  for (const std::string stop : {"capital of France", "of France is P", "apit", "Paris.", "."}) {
    const json answer = RunJson(kDemo + " --greedy --stop '" + stop + "'" + kQuestion);
    EXPECT_EQ(answer["text"], whole.substr(0, whole.find(stop))) << stop;
    EXPECT_EQ(answer["finish_reason"], "stop");
    const Outcome plain =
        RunMoewe("run " + kDemo + " --greedy --activations f32 --stop '" + stop + "'" + kQuestion);
    EXPECT_EQ(plain.out, whole.substr(0, whole.find(stop)) + "\n") << stop;
  }
  // Almost a stop string: everything comes.
  EXPECT_EQ(RunJson(kDemo + " --greedy --stop 'Paris!' --stop 'capitals'" + kQuestion)["text"],
            whole);
  // The one that is complete first, not the one that is given first.
  EXPECT_EQ(RunJson(kDemo + " --greedy --stop 'is Paris' --stop France" + kQuestion)["text"],
            "The capital of ");
}

// Text that ends in the middle of a character had half a character in it.
TEST(PublicFaults, TruncatedAnswersAreWholeCharacters) {
  const ScratchFolder scratch;
  TinyModel tiny;
  const json tokenizer = golden::ReadJson(golden::Path("text/mini/dec_byte_fallback.json"));
  tiny.vocab = tokenizer["model"]["vocab"].size();
  scratch.Put("model/config.json", tiny.Config().dump());
  scratch.Put("model/model.safetensors", tiny.Weights());
  scratch.Put("model/tokenizer.json", tokenizer.dump());
  for (int seed = 1; seed <= 12; ++seed) {
    const Outcome outcome = RunMoewe("run " + scratch.At("model") +
                                     " --ids 5 -n 9 --temp 1 --seed " + std::to_string(seed));
    EXPECT_EQ(outcome.code, 0);
    EXPECT_TRUE(IsUtf8(outcome.out)) << seed;
  }
}

// Only the first of several end tokens ended an answer.
TEST(PublicFaults, EveryEndTokenEnds) {
  const ScratchFolder scratch;
  const TinyModel tiny;
  scratch.Put("model/config.json", tiny.Config().dump());
  scratch.Put("model/model.safetensors", tiny.Weights());
  const std::string arguments = scratch.At("model") + " --ids 1,2,3 --greedy -n 12";
  const std::vector<int> ids = RunJson(arguments + " --ignore-eos")["ids"];
  ASSERT_EQ(ids.size(), 12u);
  for (const size_t at : {size_t{1}, size_t{4}}) {
    size_t first = 0;  // where this id comes for the first time
    while (ids[first] != ids[at]) ++first;
    std::vector<int> ends = {0, ids[at], 1};  // the others do not come
    for (const size_t i : {size_t{0}, size_t{2}}) {
      while (std::find(ids.begin(), ids.end(), ends[i]) != ids.end()) ends[i] += 2;
    }
    scratch.Put("model/generation_config.json", json{{"eos_token_id", ends}}.dump());
    const json answer = RunJson(arguments);
    EXPECT_EQ(answer["ids"], std::vector<int>(ids.begin(), ids.begin() + static_cast<long>(first)));
    EXPECT_EQ(answer["finish_reason"], "stop");
    EXPECT_EQ(RunJson(arguments + " --ignore-eos")["ids"], ids);
  }
}

// The seed that was printed was not the one that was used.
TEST(PublicFaults, ThePrintedSeedGivesTheSameText) {
  const std::string arguments = kDemo + " --raw -n 12 --temp 1.5 -p 'Once upon a time'";
  const json first = RunJson(arguments);
  EXPECT_EQ(RunJson(arguments + " --seed " + first["seed"].dump())["ids"], first["ids"]);
  EXPECT_NE(RunJson(arguments)["seed"], first["seed"]);
  EXPECT_NE(RunJson(arguments + " --seed 1")["ids"], RunJson(arguments + " --seed 2")["ids"]);
  // As a person sees it: on stderr.
  const Outcome shown = RunShell("$MOEWE run " + arguments + " --seed 41 2>&1 >/dev/null");
  EXPECT_NE(shown.out.find("41"), std::string::npos) << shown.out;
}

// Penalties were parsed and then had no effect.
TEST(PublicFaults, PenaltiesChangeGreedyOutput) {
  const std::string arguments = kDemo + " --raw --greedy -n 40 --ignore-eos -p 'the the the the'";
  const json plain = RunJson(arguments)["ids"];
  for (const char* flag : {"--presence-penalty 2", "--frequency-penalty 2", "--repeat-penalty 2"}) {
    EXPECT_NE(RunJson(arguments + " " + flag)["ids"], plain) << flag;
  }
  const std::string biased = plain[0].dump();
  EXPECT_NE(RunJson(arguments + " --logit-bias " + biased + "=-100")["ids"][0], plain[0]);
}

// A prompt that fills the context shifted it for ever, or crashed.
TEST(PublicFaults, ContextsThatAreFull) {
  const std::string ids = " --ids 1,2,3,4,5,6,7,8";
  const Outcome full = RunMoewe("run --json " + kDemo + ids + " --ctx 8");
  EXPECT_EQ(full.code, 2);
  EXPECT_EQ(full.json()["error"]["code"], "Usage");
  EXPECT_NE(full.out.find("context length exceeded"), std::string::npos);
  EXPECT_EQ(RunMoewe("run --json " + kDemo + ids + " --ctx 7").code, 2);
  for (const size_t room : {size_t{1}, size_t{2}, size_t{9}}) {
    const json answer =
        RunJson(kDemo + ids + " --greedy --ignore-eos --ctx " + std::to_string(8 + room));
    EXPECT_EQ(answer["ids"].size(), room);
    EXPECT_EQ(answer["finish_reason"], "length");
  }
}

// The template wrote a BOS and the tokenizer put another one before it; and text without a template
// must get the tokenizer's one.
TEST(PublicFaults, OneBosAndNotTwo) {
  const ScratchFolder scratch;
  const json tokenizer = golden::ReadJson(golden::Path("text/mini/post_template.json"));
  TinyModel tiny;
  tiny.vocab = 600;
  scratch.Put("model/config.json", tiny.Config().dump());
  scratch.Put("model/model.safetensors", tiny.Weights());
  scratch.Put("model/tokenizer.json", tokenizer.dump());
  scratch.Put(
      "model/tokenizer_config.json",
      R"({"bos_token": "<s>", "chat_template": "{{ bos_token }}{{ messages[0].content }}"})");
  const std::string model = scratch.At("model");
  const auto count = [&](const std::string& flags) {
    return RunMoewe("tokenize --json " + model + flags).json()["ids"].size();
  };
  const size_t bare = count(" -p Hello");
  const size_t with_special = count(" --special -p Hello");
  ASSERT_EQ(with_special, bare + 2);  // <s> and </s>
  const std::string run = model + " -n 1 --greedy -p Hello";
  EXPECT_EQ(RunJson(run)["usage"]["prompt_tokens"], bare + 1);
  EXPECT_EQ(RunJson(run + " --raw")["usage"]["prompt_tokens"], with_special);
}

// Scales too coarse for the weights made models that say the same for ever. What four bits make of
// the demonstration model tells a tale as well as the model itself.
TEST(PublicFaults, CoarseWeightsDoNotLoop) {
  const ScratchFolder scratch;
  const auto perplexity = [&](const std::string& model) {
    return RunMoewe("ppl --json --quiet --max-windows 1 " + model + " " + kDemo + "/eval/tales.txt")
        .json()["ppl"]
        .get<double>();
  };
  // The share of sequences of four tokens that were not said before.
  const auto novelty = [](const std::string& model) {
    const std::string ask = "run --json --quiet --raw --greedy --ignore-eos -n 150 ";
    const Outcome answer = RunMoewe(ask + "-p 'Once upon a time' " + model);
    const auto ids = answer.json()["ids"].get<std::vector<int>>();
    std::set<std::vector<int>> said;
    for (auto at = ids.begin(); ids.end() - at >= 4; ++at) said.emplace(at, at + 4);
    return static_cast<double>(said.size()) / static_cast<double>(ids.size() - 3);
  };
  const double wanted = perplexity(kDemo);
  for (const std::string quant : {"q4", "q4tp", "vbit"}) {
    const std::string file = scratch.At(quant + ".cmf");
    ASSERT_EQ(RunMoewe("convert --quiet --quant " + quant + " " + kDemo + " " + file).code, 0);
    EXPECT_LT(perplexity(file), 1.05 * wanted) << quant;
    EXPECT_GT(novelty(file), 0.9) << quant;
  }
  // Which the test can tell from a model that coarse weights did destroy.
  const std::string broken = scratch.At("q1t.cmf");
  ASSERT_EQ(RunMoewe("convert --quiet --quant q1t " + kDemo + " " + broken).code, 0);
  EXPECT_LT(novelty(broken), 0.5);
  EXPECT_GT(perplexity(broken), 2.0 * wanted);
}

}  // namespace
}  // namespace moewe
