// moewe run: stop strings, end tokens, what --json says, Ctrl-C, and a model that breaks down.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "golden.h"
#include "process.h"
#include "program.h"

namespace moewe {
namespace {

const std::string kDemo = paths::DemoModel();

nlohmann::json RunJson(const std::string& arguments) {
  const Outcome outcome = RunMoewe("run " + kDemo + " --json --activations f32 " + arguments);
  EXPECT_EQ(outcome.code, 0) << arguments;
  return outcome.json();
}

std::string Plain(const std::string& arguments) {
  return RunMoewe("run " + kDemo + " --activations f32 " + arguments).out;
}

const std::string kTale =
    "--raw --greedy -n 32 -p 'Once upon a time, in a deep forest, there lived' ";

TEST(RunStop, AcrossTokensAndNothingOfItIsShown) {
  const std::string whole = RunJson(kTale)["text"];
  // Which name the tale gives is close enough to depend on the instruction set.
  const size_t at = whole.find("was ");
  ASSERT_NE(at, std::string::npos) << whole;
  ASSERT_GT(whole.size(), at + 20);
  const std::string before = whole.substr(0, at);
  const std::string stop = whole.substr(at, 12);
  ASSERT_EQ(stop.find_first_of("'\n"), std::string::npos) << stop;
  EXPECT_EQ(Plain(kTale + "--stop '" + stop + "'"), before + "\n");
  EXPECT_EQ(Plain(kTale + "--stop 'not there' --stop '" + stop + "'"), before + "\n");
  // Two that overlap: the one that is complete first.
  EXPECT_EQ(Plain(kTale + "--stop '" + whole.substr(at - 5, 14) + "' --stop '" +
                  whole.substr(at, 5) + "'"),
            before + "\n");
  // The beginning of one that does not come is shown all the same.
  EXPECT_EQ(Plain(kTale + "--stop '" + stop + "ZZ'"), whole + "\n");
  const auto json = RunJson(kTale + "--stop '" + stop + "'");
  EXPECT_EQ(json["text"], before);
  EXPECT_EQ(json["finish_reason"], "stop");
  EXPECT_EQ(RunMoewe("run " + kDemo + " -p x --stop ''").code, 2);
}

// Makes the model write one character over and over, a byte a token: each token is likelier than
// the next one by less than what having been used costs it.
std::string Forced(const std::vector<int>& ids) {
  std::string flags = "--raw --greedy --ignore-eos --frequency-penalty 100 -p x ";
  double bias = 100000.0;
  for (const int id : ids) {
    flags += "--logit-bias " + std::to_string(id) + "=" + std::to_string(bias) + " ";
    bias -= 100.0 / static_cast<double>(ids.size());
  }
  return flags;
}

TEST(RunStop, InsideOfCharacters) {
  const std::string star = "\u2605";  // three bytes
  const auto ids = RunMoewe("tokenize " + kDemo + " --json -p '" + star + "'")
                       .json()["ids"]
                       .get<std::vector<int>>();
  // A character of several tokens is what this is about.
  ASSERT_GT(ids.size(), 1u);
  ASSERT_EQ(std::set<int>(ids.begin(), ids.end()).size(), ids.size());
  const std::string forced = Forced(ids);
  const std::string three = std::to_string(3 * ids.size());
  EXPECT_EQ(RunJson(forced + "-n " + three)["text"], star + star + star);
  // Cut in the middle of a character: what was whole, and a mark for the rest.
  const std::string cut = RunJson(forced + "-n " + std::to_string(3 * ids.size() - 1))["text"];
  EXPECT_EQ(cut, star + star + "\uFFFD");
  // A stop string of two characters ends the answer when its last byte is there.
  const auto stopped = RunJson(forced + "-n 60 --stop '" + star + star + "'");
  EXPECT_EQ(stopped["text"], "");
  EXPECT_EQ(stopped["ids"].size(), 2 * ids.size());
  EXPECT_EQ(stopped["finish_reason"], "stop");
  // Another character with the same first bytes (U+2606) is none.
  EXPECT_EQ(RunJson(forced + "-n " + three + " --stop '\u2606'")["text"], star + star + star);
}

TEST(RunEnd, EveryEndTokenOfTheModelEndsTheAnswer) {
  for (const std::string id : {"4093", "4095"}) {  // generation_config.json
    const std::string forced = "--raw --greedy -p x --logit-bias " + id + "=1000 ";
    const auto ended = RunJson(forced);
    EXPECT_EQ(ended["finish_reason"], "stop");
    EXPECT_TRUE(ended["ids"].empty());
    EXPECT_EQ(ended["text"], "");
    const auto ignored = RunJson(forced + "--ignore-eos -n 3");
    EXPECT_EQ(ignored["ids"].size(), 3u);
    EXPECT_EQ(ignored["finish_reason"], "length");
  }
}

TEST(RunJson, Fields) {
  const auto json = RunJson("--raw --seed 11 -n 6 --ignore-eos -p 'Once upon a time'");
  std::set<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.insert(key);
  EXPECT_EQ(keys, (std::set<std::string>{"text", "ids", "finish_reason", "usage", "seed", "timings",
                                         "cache", "speculation"}));
  EXPECT_EQ(json["seed"], 11);
  EXPECT_EQ(json["usage"]["completion_tokens"], 6);
  EXPECT_EQ(json["usage"]["total_tokens"], json["usage"]["prompt_tokens"].get<int>() + 6);
  EXPECT_GT(json["timings"]["prefill_seconds"].get<double>(), 0.0);
  EXPECT_GT(json["timings"]["decode_tokens_per_s"].get<double>(), 0.0);
  EXPECT_EQ(json["cache"]["reused_tokens"], 0);
  EXPECT_GT(json["cache"]["kv_bytes"].get<int>(), 0);
  std::string ids;
  for (const int id : json["ids"]) ids += (ids.empty() ? "" : ",") + std::to_string(id);
  EXPECT_EQ(RunMoewe("detokenize " + kDemo + " --json --ids " + ids).json()["text"], json["text"]);
  // A random seed is reported, and gives the same again.
  const auto drawn = RunJson("--raw -n 8 --ignore-eos --temp 1 -p 'Once'");
  EXPECT_EQ(
      RunJson("--raw -n 8 --ignore-eos --temp 1 -p 'Once' --seed " + drawn["seed"].dump())["ids"],
      drawn["ids"]);
}

TEST(RunChunk, AndThreadsChangeNothing) {
  const std::string arguments =
      "--seed 5 -n 12 --temp 1 --ignore-eos -p 'What is the capital of France?' ";
  const auto expected = RunJson(arguments);
  for (const char* flags : {"--chunk 1", "--chunk 3 --threads 1", "--chunk 7 --threads 4"}) {
    EXPECT_EQ(RunJson(arguments + flags)["ids"], expected["ids"]) << flags;
  }
}

TEST(RunInterrupt, CtrlCShowsWhatThereIsAndExits130) {
  Process run({"run", kDemo, "--greedy", "--raw", "--ignore-eos", "--activations", "f32", "-p",
               "Once upon a time"},
              Process::Via::kPipes);
  std::string text = run.ReadUntil(" ");
  run.Interrupt();
  text += run.ReadAll();
  EXPECT_EQ(run.Wait(), 130);
  EXPECT_TRUE(text.ends_with("\n"));
  const auto whole = RunJson("--greedy --raw --ignore-eos -n 200 -p 'Once upon a time'");
  text.pop_back();
  const std::string& expected = whole["text"].get_ref<const std::string&>();
  const size_t common = std::min(text.size(), expected.size());
  EXPECT_EQ(text.substr(0, common), expected.substr(0, common));
}

// A copy of a small model, one of whose weights is not a number.
void PutBrokenModel(const std::string& tensor, const ScratchFolder& scratch) {
  const std::filesystem::path source = golden::Path("hf/llama");
  std::vector<uint8_t> bytes = golden::ReadBytes(source / "model.safetensors");
  uint64_t header_size = 0;
  std::memcpy(&header_size, bytes.data(), sizeof(header_size));
  const auto begin = bytes.begin() + 8;
  const auto header = nlohmann::json::parse(begin, begin + static_cast<ptrdiff_t>(header_size));
  const auto& entry = header.at(tensor);
  ASSERT_EQ(entry["dtype"], "F32");
  const size_t offset = 8 + header_size + entry["data_offsets"][0].get<size_t>();
  const float value = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
  scratch.Put("model.safetensors", std::string(bytes.begin(), bytes.end()));
  std::filesystem::copy_file(source / "config.json", scratch.At("config.json"));
}

TEST(RunNan, LogitsThatAreNotNumbersAreAnError) {
  const ScratchFolder scratch;
  PutBrokenModel("model.norm.weight", scratch);
  for (const char* flags : {"--greedy", "--temp 1 --seed 1"}) {
    const Outcome outcome =
        RunMoewe("run " + scratch.At("") + " --json --ids 1,2,3 -n 4 " + std::string(flags));
    EXPECT_EQ(outcome.code, 1);
    EXPECT_EQ(outcome.json()["error"]["code"], "Internal");
  }
}

}  // namespace
}  // namespace moewe
