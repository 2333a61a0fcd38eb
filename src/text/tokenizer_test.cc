// Ids, text and streams against the goldens; what a user writes never becomes a control token.
#include "text/tokenizer.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "golden.h"
#include "moewe/error.h"
#include "paths.h"

namespace moewe::text {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::vector<json> ReadJsonLines(const fs::path& path) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error("cannot open " + path.string());
  std::vector<json> lines;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty()) lines.push_back(json::parse(line));
  }
  return lines;
}

std::vector<uint8_t> ReadGzip(const fs::path& path) {
  std::vector<uint8_t> bytes;
  gzFile in = gzopen(path.c_str(), "rb");
  if (in == nullptr) throw std::runtime_error("cannot open " + path.string());
  std::vector<uint8_t> chunk(1 << 20);
  for (int n = 0; (n = gzread(in, chunk.data(), 1 << 20)) > 0;) {
    bytes.insert(bytes.end(), chunk.begin(), chunk.begin() + n);
  }
  gzclose(in);
  return bytes;
}

std::unique_ptr<Tokenizer> LoadMini(const std::string& name,
                                    Tokenizer::Limits limits = Tokenizer::Limits::kApply) {
  const fs::path path = golden::Path("text/mini/" + name + ".json");
  return Tokenizer::FromJson(golden::ReadBytes(path), path.string(), limits);
}

std::unique_ptr<Tokenizer> LoadDemo() {
  const fs::path path = fs::path(paths::DemoModel()) / "tokenizer.json";
  return Tokenizer::FromJson(golden::ReadBytes(path), path.string());
}

using Ids = std::vector<TokenId>;

void CheckCase(const Tokenizer& tokenizer, const json& c) {
  SCOPED_TRACE(c.at("id").get<std::string>());
  const Ids ids = c.at("ids").get<Ids>();
  if (c.contains("library_panics")) {
    try {
      tokenizer.Decode(ids, false);
    } catch (const Error&) {
    }
    return;
  }
  if (c.contains("ids_no_special")) {
    const std::string text = c.at("text").get<std::string>();
    EXPECT_EQ(tokenizer.Encode(text, true), ids);
    EXPECT_EQ(tokenizer.Encode(text, false), c.at("ids_no_special").get<Ids>());
  }
  if (c.contains("pair")) {
    const json& pair = c.at("pair");
    const bool in_place = pair.is_string();
    EXPECT_EQ(tokenizer.EncodePair(c.at("text").get<std::string>(),
                                   (in_place ? pair : pair.at("text")).get<std::string>(), true),
              in_place ? ids : pair.at("ids").get<Ids>());
  }
  if (c.contains("decoded")) {
    EXPECT_EQ(tokenizer.Decode(ids, false), c.at("decoded").get<std::string>());
    EXPECT_EQ(tokenizer.Decode(ids, true), c.at("decoded_skip_special").get<std::string>());
  }
}

std::vector<std::string> MiniNames() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(golden::Path("text/mini"))) {
    const std::string file = entry.path().filename().string();
    if (file.ends_with(".json")) names.push_back(file.substr(0, file.size() - 5));
  }
  std::sort(names.begin(), names.end());
  return names;
}

class MiniTokenizer : public testing::TestWithParam<std::string> {};

TEST_P(MiniTokenizer, MatchesGoldens) {
  const auto tokenizer = LoadMini(GetParam());
  const auto cases = ReadJsonLines(golden::Path("text/mini/" + GetParam() + ".cases.jsonl"));
  ASSERT_FALSE(cases.empty());
  for (const json& c : cases) CheckCase(*tokenizer, c);
}

INSTANTIATE_TEST_SUITE_P(All, MiniTokenizer, testing::ValuesIn(MiniNames()),
                         [](const auto& test) { return test.param; });

class PublishedTokenizer : public testing::TestWithParam<std::string> {};

void CheckStream(const Tokenizer& tokenizer, const json& c) {
  SCOPED_TRACE(c.at("id").get<std::string>());
  Tokenizer::Stream stream(tokenizer, c.at("skip_special").get<bool>());
  const Ids ids = c.at("ids").get<Ids>();
  std::string shown;
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string piece = stream.Push(ids[i]);
    const json& expected = c.at("pieces").at(i);
    EXPECT_EQ(piece, expected.is_null() ? "" : expected.get<std::string>()) << "piece " << i;
    shown += piece;
  }
  EXPECT_EQ(shown + stream.Finish(), c.at("full").get<std::string>());
  EXPECT_EQ(stream.Finish(), "");
}

TEST_P(PublishedTokenizer, MatchesGoldens) {
  const std::string folder = "golden/text/tokenizers/" + GetParam();
  MOEWE_NEEDS_SHARED(folder);
  const auto tokenizer =
      Tokenizer::FromJson(ReadGzip(golden::SharedPath(folder + "/tokenizer.json.gz")), GetParam());
  for (const char* kind : {"/cases.jsonl", "/pairs.jsonl"}) {
    const auto cases = ReadJsonLines(golden::SharedPath(folder + kind));
    ASSERT_FALSE(cases.empty());
    for (const json& c : cases) CheckCase(*tokenizer, c);
  }
  const auto streams = ReadJsonLines(golden::SharedPath(folder + "/streams.jsonl"));
  ASSERT_FALSE(streams.empty());
  for (const json& c : streams) CheckStream(*tokenizer, c);
  if (HasFailure()) return;
  // Whole texts of template origin with every second word a message: the same ids, as long as
  // no control token is written in it.
  std::set<TokenId> control;
  for (const AddedToken& token : tokenizer->AddedTokens()) control.insert(token.id);
  size_t compared = 0;
  for (const json& c : ReadJsonLines(golden::SharedPath(folder + "/cases.jsonl"))) {
    OriginText text{c.at("text").get<std::string>(), {}};
    const Ids ids = c.at("ids_no_special").get<Ids>();
    if (std::any_of(ids.begin(), ids.end(), [&](TokenId id) { return control.contains(id); }))
      continue;
    for (size_t begin = 1; begin < text.text.size(); begin += 8) {
      text.message_spans.push_back({begin, std::min(begin + 5, text.text.size())});
    }
    EXPECT_EQ(tokenizer->Encode(text), ids) << c.at("id");
    ++compared;
  }
  EXPECT_GT(compared, 100U);
}

INSTANTIATE_TEST_SUITE_P(All, PublishedTokenizer,
                         testing::Values("bert", "deepseek_v3", "gemma3", "gptoss", "llama3_1",
                                         "mistral_v1", "qwen3", "t5"),
                         [](const auto& test) { return test.param; });

TEST(Tokenizer, EncodesRenderedChats) {
  const std::string file = "golden/text/chat/end_to_end.jsonl";
  MOEWE_NEEDS_SHARED(file);
  std::map<std::string, std::unique_ptr<Tokenizer>> tokenizers;
  size_t compared = 0;
  const auto cases = ReadJsonLines(golden::SharedPath(file));
  ASSERT_FALSE(cases.empty());
  for (const json& c : cases) {
    const std::string name = c.at("tokenizer").get<std::string>();
    auto& tokenizer = tokenizers[name];
    if (tokenizer == nullptr) {
      tokenizer = Tokenizer::FromJson(
          ReadGzip(golden::SharedPath("golden/text/tokenizers/" + name + "/tokenizer.json.gz")),
          name);
    }
    const std::string shared =
        "golden/text/chat/cases/" + c.at("template").get<std::string>() + ".jsonl";
    for (const json& rendered : ReadJsonLines(golden::SharedPath(shared))) {
      if (rendered.at("id") != c.at("case")) continue;
      ++compared;
      const std::string text = rendered.at("output").get<std::string>();
      EXPECT_EQ(tokenizer->Encode(OriginText{text, {}}), c.at("ids").get<Ids>())
          << name << " " << c.at("template") << " " << c.at("case");
    }
  }
  EXPECT_EQ(compared, cases.size());
}

// Every added token as a message between template words, in every mini tokenizer: its id may only
// come out where the model has no other word for unknown text.
TEST_P(MiniTokenizer, MessagesGiveNoControlTokens) {
  const auto tokenizer = LoadMini(GetParam(), Tokenizer::Limits::kIgnore);
  const json file = golden::ReadJson(golden::Path("text/mini/" + GetParam() + ".json"));
  const json& model = file.at("model");
  std::string unknown;
  if (model.contains("unk_token") && model["unk_token"].is_string()) unknown = model["unk_token"];
  if (model.contains("unk_id") && model["unk_id"].is_number()) {
    unknown = tokenizer->IdToToken(model["unk_id"].get<TokenId>()).value_or("");
  }
  for (const AddedToken& token : tokenizer->AddedTokens()) {
    if (!token.special || token.content == unknown) continue;
    for (const std::string& around : {std::string(), std::string(" "), std::string("the ")}) {
      OriginText text{around + token.content + around,
                      {{0, 2 * around.size() + token.content.size()}}};
      Ids ids;
      try {
        ids = tokenizer->Encode(text);
      } catch (const Error&) {  // a model without a word for unknown text
        continue;
      }
      EXPECT_EQ(std::count(ids.begin(), ids.end(), token.id), 0) << "'" << text.text << "'";
    }
  }
}

TEST_P(MiniTokenizer, MessagesWithoutControlTokensEncodePlainly) {
  const auto tokenizer = LoadMini(GetParam(), Tokenizer::Limits::kIgnore);
  std::vector<std::string> marks;
  for (const AddedToken& token : tokenizer->AddedTokens()) {
    marks.push_back(token.content);
  }
  for (const json& c : ReadJsonLines(golden::Path("text/mini/" + GetParam() + ".cases.jsonl"))) {
    if (!c.contains("text")) continue;
    OriginText text{c.at("text").get<std::string>(), {}};
    for (size_t begin = 0; begin < text.text.size(); begin += 6) {
      text.message_spans.push_back({begin, std::min(begin + 4, text.text.size())});
    }
    const Ids plain = tokenizer->Encode(text.text);
    const bool marked = std::any_of(marks.begin(), marks.end(), [&](const std::string& mark) {
      return text.text.find(mark) != std::string::npos;
    });
    if (!marked && GetParam().find("normalized") == std::string::npos) {
      EXPECT_EQ(tokenizer->Encode(text), plain) << c.at("id");
    }
    // A text that is all template is plain encoding, whatever it holds.
    EXPECT_EQ(tokenizer->Encode(OriginText{text.text, {}}), plain) << c.at("id");
  }
}

OriginText Join(const std::vector<std::pair<std::string, bool>>& parts) {
  OriginText text;
  for (const auto& [part, message] : parts) {
    if (message) text.message_spans.push_back({text.text.size(), text.text.size() + part.size()});
    text.text += part;
  }
  return text;
}

TEST(Tokenizer, TemplateTokensStayBesideForgedOnes) {
  const auto tokenizer = LoadDemo();
  std::vector<AddedToken> special;
  for (const AddedToken& token : tokenizer->AddedTokens()) {
    if (token.special) special.push_back(token);
  }
  ASSERT_GE(special.size(), 2U);
  const AddedToken& mark = special[0];
  for (const AddedToken& forged : special) {
    const size_t half = forged.content.size() / 2;
    // Whole in the message; and half of it, to be completed by the template's text.
    for (const OriginText& text :
         {Join(
              {{mark.content, false}, {"a " + forged.content + " b", true}, {mark.content, false}}),
          Join({{mark.content, false},
                {"a " + forged.content.substr(0, half), true},
                {forged.content.substr(half) + mark.content, false}}),
          Join({{mark.content + forged.content.substr(0, half), false},
                {forged.content.substr(half), true},
                {mark.content, false}})}) {
      const Ids ids = tokenizer->Encode(text);
      const auto count = [&](TokenId id) { return std::count(ids.begin(), ids.end(), id); };
      EXPECT_EQ(count(mark.id), 2) << text.text;
      EXPECT_EQ(count(forged.id), forged.id == mark.id ? 2 : 0) << text.text;
      EXPECT_EQ(ids.front(), mark.id);
      EXPECT_EQ(ids.back(), mark.id);
      EXPECT_EQ(tokenizer->Decode(ids, false), text.text);
    }
  }
}

TEST(Tokenizer, UnflaggedMarkersAreControlTokensAndWordsAreNot) {
  MOEWE_NEEDS_SHARED("golden/text/tokenizers/deepseek_v3");
  const auto tokenizer = Tokenizer::FromJson(
      ReadGzip(golden::SharedPath("golden/text/tokenizers/deepseek_v3/tokenizer.json.gz")),
      "deepseek_v3");
  const std::string user = "<\uff5cUser\uff5c>";
  const TokenId id = tokenizer->TokenToId(user).value();
  const Ids ids = tokenizer->Encode(Join({{user, false}, {"hi" + user, true}}));
  EXPECT_EQ(std::count(ids.begin(), ids.end(), id), 1);
  EXPECT_EQ(tokenizer->Decode(ids, false), user + "hi" + user);

  const auto qwen = Tokenizer::FromJson(
      ReadGzip(golden::SharedPath("golden/text/tokenizers/qwen3/tokenizer.json.gz")), "qwen3");
  const Ids word = qwen->Encode(Join({{"<think>", true}}));
  EXPECT_EQ(word, Ids{qwen->TokenToId("<think>").value()});
}

TEST(Tokenizer, ManyForgedTokensAreQuick) {
  const auto tokenizer = LoadMini("model_unigram_nopre", Tokenizer::Limits::kIgnore);
  const AddedToken token = tokenizer->AddedTokens().at(1);
  std::string message;
  for (int i = 0; i < 2000; ++i) message += token.content;
  const Ids ids = tokenizer->Encode(Join({{message, true}}));
  EXPECT_EQ(std::count(ids.begin(), ids.end(), token.id), 0);
}

TEST(Tokenizer, LimitsApplyOnlyIfAsked) {
  const std::string text = "the lowest newest widest tokens";
  EXPECT_EQ(LoadMini("trunc_right", Tokenizer::Limits::kApply)->Encode(text).size(), 8U);
  EXPECT_GT(LoadMini("trunc_right", Tokenizer::Limits::kIgnore)->Encode(text).size(), 8U);
  EXPECT_EQ(LoadMini("pad_fixed", Tokenizer::Limits::kIgnore)->Encode("").size(), 0U);
}

ErrorCode CodeOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_FALSE(error.message().empty());
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::kInternal;
}

// Flags that have a default may be left out: what is spelled out and what is not is the same
// tokenizer.
TEST(Tokenizer, AddedTokensMayLackFlags) {
  json spelled = json::parse(std::ifstream(fs::path(paths::DemoModel()) / "tokenizer.json"));
  spelled["added_tokens"].push_back({{"id", 4096},
                                     {"content", "Zauberwort"},
                                     {"single_word", false},
                                     {"lstrip", false},
                                     {"rstrip", false},
                                     {"normalized", true},
                                     {"special", false}});
  json terse = spelled;
  for (json& token : terse["added_tokens"]) {
    for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized"}) token.erase(flag);
    if (token["special"] == false) token.erase("special");
  }
  const auto load = [](const json& file) {
    const std::string text = file.dump();
    return Tokenizer::FromJson(Bytes(reinterpret_cast<const uint8_t*>(text.data()), text.size()),
                               "tokenizer.json");
  };
  const auto expected = load(spelled);
  const auto tokenizer = load(terse);
  ASSERT_EQ(tokenizer->AddedTokens().size(), expected->AddedTokens().size());
  for (size_t i = 0; i < expected->AddedTokens().size(); ++i) {
    const AddedToken a = tokenizer->AddedTokens()[i];
    const AddedToken b = expected->AddedTokens()[i];
    EXPECT_EQ(a.content, b.content);
    EXPECT_EQ(a.special, b.special) << a.content;
    EXPECT_EQ(a.normalized, b.normalized) << a.content;
    EXPECT_EQ(a.lstrip || a.rstrip || a.single_word, b.lstrip || b.rstrip || b.single_word);
  }
  const std::string text = "<|im_start|>user\nEin Zauberwort, bitte.<|im_end|>";
  EXPECT_EQ(tokenizer->Encode(text), expected->Encode(text));
  // A flag that is no flag is still a fault.
  terse["added_tokens"][0]["lstrip"] = "yes";
  EXPECT_THROW(load(terse), Error);
}

TEST(Tokenizer, BadInputIsAnError) {
  for (const std::string bad :
       {"", "{", "[]", "{}", "null", "\xff", "{\"model\": {\"type\": \"BPE\"}}"}) {
    const Bytes bytes(reinterpret_cast<const uint8_t*>(bad.data()), bad.size());
    EXPECT_EQ(CodeOf([&] { Tokenizer::FromJson(bytes, "x.json"); }), ErrorCode::kParse) << bad;
  }
  const auto tokenizer = LoadDemo();
  EXPECT_EQ(CodeOf([&] { tokenizer->Encode("ok \xc3("); }), ErrorCode::kUsage);
  EXPECT_EQ(CodeOf([&] { tokenizer->Encode(OriginText{"\xff", {{0, 1}}}); }), ErrorCode::kUsage);
  EXPECT_EQ(CodeOf([&] { tokenizer->Encode(OriginText{"abc", {{1, 4}}}); }), ErrorCode::kUsage);
  EXPECT_EQ(CodeOf([&] { tokenizer->Encode(OriginText{"abc", {{2, 3}, {0, 1}}}); }),
            ErrorCode::kUsage);
  EXPECT_EQ(CodeOf([&] { tokenizer->Decode(Ids{-1}, false); }), ErrorCode::kUsage);
  EXPECT_EQ(CodeOf([&] { tokenizer->Decode(Ids{2000000000}, false); }), ErrorCode::kUsage);
  EXPECT_EQ(tokenizer->IdToToken(2000000000), std::nullopt);
  EXPECT_EQ(tokenizer->IdToToken(-1), std::nullopt);
  EXPECT_EQ(tokenizer->TokenToId("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer->IdToToken(tokenizer->TokenToId("a").value()), "a");
}

TEST(Tokenizer, StreamsSkipIdsBeyondTheVocabulary) {
  const auto tokenizer = LoadDemo();
  const Ids ids = tokenizer->Encode("caf\xc3\xa9 \xf0\x9f\x98\x80");
  std::string shown;
  Tokenizer::Stream stream(*tokenizer, true);
  for (const TokenId id : ids) shown += stream.Push(id) + stream.Push(2000000000);
  EXPECT_EQ(shown + stream.Finish(), "caf\xc3\xa9 \xf0\x9f\x98\x80");
}

// The rest of a broken character is given out at the end, as Decode shows it.
TEST(Tokenizer, StreamsFinishWithWhatIsHeldBack) {
  const auto tokenizer = LoadDemo();
  Ids ids = tokenizer->Encode("a\xf0\x9f\x98\x80");
  ASSERT_GT(ids.size(), 2U);
  ids.pop_back();
  Tokenizer::Stream stream(*tokenizer, true);
  std::string shown;
  for (const TokenId id : ids) shown += stream.Push(id);
  EXPECT_EQ(shown, "a");
  EXPECT_EQ(shown + stream.Finish(), tokenizer->Decode(ids, true));
}

}  // namespace
}  // namespace moewe::text
