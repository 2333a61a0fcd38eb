// The public API on the demonstration model.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "golden.h"
#include "moewe/moewe.h"
#include "paths.h"

namespace moewe {
namespace {

const std::string kDemo = paths::DemoModel();
const std::string kQuestion = "What is the capital of France?";
const std::string kReply = "The capital of France is Paris.";

Model OpenDemo(uint32_t sequences = 2) {
  ModelOptions options;
  options.activations = Activations::kF32;
  options.sequences = sequences;
  return Model::Open(kDemo, options);
}

GenerateOptions Greedy(uint32_t max_tokens = 0) {
  GenerateOptions options;
  options.temperature = 0.0f;
  options.max_tokens = max_tokens;
  return options;
}

ErrorCode CodeOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::kInternal;
}

TEST(Api, DescribesTheModel) {
  const Model model = OpenDemo();
  const ModelInfo& info = model.info();
  EXPECT_EQ(info.family, "qwen3_moe");
  EXPECT_EQ(info.num_layers, 4u);
  EXPECT_EQ(info.hidden_size, 192u);
  EXPECT_EQ(info.vocab_size, 4096u);
  EXPECT_EQ(info.num_experts, 32u);
  EXPECT_EQ(info.experts_per_token, 4u);
  EXPECT_EQ(info.context, 1024u);
  EXPECT_TRUE(info.has_tokenizer);
  EXPECT_TRUE(info.has_chat_template);
  // bf16: two bytes a parameter (models/demo/README.md); norms, two of the width and two of a head
  // a layer and one at the end, are held in f32.
  EXPECT_EQ(info.weight_bytes, 2u * 5924800u + 2u * (4u * (2u * 192u + 2u * 32u) + 192u));
  // 2 sequences of 1024 positions, 4 layers, keys and values of 2 heads of 32, f32.
  EXPECT_EQ(info.kv_bytes, 2u * 1024u * 4u * 2u * 2u * 32u * 4u);
}

// do_sample: false means greedy, unless somebody asks for a draw.
TEST(Api, AModelThatNeverSamplesIsGreedy) {
  std::string folder = (std::filesystem::temp_directory_path() / "moewe_api.XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"}) {
    std::filesystem::create_symlink(std::filesystem::absolute(kDemo) / name,
                                    std::filesystem::path(folder) / name);
  }
  const auto temperature_of = [&](const char* generation, const GenerateOptions& options) {
    std::ofstream(folder + "/generation_config.json") << generation;
    const Model model = Model::Open(folder);
    return model.Generate(model.Tokenize("Once"), options).temperature;
  };
  GenerateOptions options;
  options.max_tokens = 1;
  GenerateOptions top_p = options;
  top_p.top_p = 0.5f;
  GenerateOptions warm = options;
  warm.temperature = 0.25f;
  const char* kNever = R"({"do_sample": false, "temperature": 0.6, "top_p": 0.9})";
  EXPECT_EQ(temperature_of(kNever, options), 0.0f);
  EXPECT_EQ(temperature_of(kNever, warm), 0.25f);
  EXPECT_EQ(temperature_of(kNever, top_p), 0.6f);
  EXPECT_EQ(temperature_of(R"({"do_sample": true, "temperature": 0.6})", options), 0.6f);
  EXPECT_EQ(temperature_of(R"({"temperature": 0.6})", options), 0.6f);
  std::filesystem::remove_all(folder);
}

TEST(Api, SpeculationChangesNoAnswer) {
  ModelOptions options;
  options.speculate = 0;
  const Model plain = Model::Open(kDemo, options);
  options.speculate = 6;
  const Model drafting = Model::Open(kDemo, options);
  const Model by_gain = Model::Open(kDemo);
  const std::string list = "pine, pilot, pilot, pilot, pilot";
  for (const float temperature : {0.0f, 0.9f}) {
    GenerateOptions asked = Greedy(120);
    asked.temperature = temperature;
    asked.seed = 5;
    asked.ignore_eos = true;
    const std::vector<Token> prompt = plain.Tokenize("Say: " + list + ", " + list + ", " + list);
    const Answer expected = plain.Generate(prompt, asked);
    EXPECT_EQ(expected.speculation.drafted, 0u);
    EXPECT_EQ(expected.speculation.steps, 119u);
    for (const Model& model : {drafting, by_gain}) {
      const Answer answer = model.Generate(prompt, asked);
      EXPECT_EQ(answer.ids, expected.ids);
      EXPECT_EQ(answer.text, expected.text);
      EXPECT_EQ(answer.speculation.steps + answer.speculation.accepted, 119u);
    }
    const Speculation said = drafting.Generate(prompt, asked).speculation;
    EXPECT_GT(said.drafted, 0u);
    EXPECT_LE(said.accepted, said.drafted);
    EXPECT_LE(said.drafted_steps, said.steps);
  }
  options.speculate = 65;
  EXPECT_EQ(CodeOf([&] { Model::Open(kDemo, options); }), ErrorCode::kUsage);
}

// One rule for text that is not UTF-8, wherever it comes in.
TEST(Api, TextIsUtf8) {
  const Model model = OpenDemo();
  const std::string broken = "ab\xff";
  const auto where = [&](const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
      return error.where().ToString();
    }
    return std::string("no error");
  };
  GenerateOptions stops = Greedy(1);
  stops.stop = {"x", broken};
  EXPECT_EQ(where([&] { model.Tokenize(broken); }), "text at offset 2");
  EXPECT_EQ(where([&] { model.Prompt(std::vector<Message>{{"system", "x"}, {"user", broken}}); }),
            "messages[1].content at offset 2");
  EXPECT_EQ(where([&] { model.Generate(model.Tokenize("x"), stops); }), "stop[1] at offset 2");
  Session session(model);
  EXPECT_EQ(where([&] { session.Say(broken, Greedy(1)); }), "messages[0].content at offset 2");
  EXPECT_TRUE(session.messages().empty());
}

TEST(Api, GoldenPrompts) {
  const Model model = OpenDemo();
  const auto golden = golden::ReadJson(kDemo + "/golden.json");
  for (const auto& prompt : golden["prompts"]) {
    const std::vector<Token> ids = model.Tokenize(prompt["text"].get<std::string>());
    EXPECT_EQ(ids, prompt["ids"].get<std::vector<Token>>());
    EXPECT_EQ(model.Detokenize(ids), prompt["text"].get<std::string>());
    GenerateOptions options = Greedy(32);
    options.ignore_eos = true;
    const Answer answer = model.Generate(ids, options);
    EXPECT_EQ(answer.ids, prompt["greedy_ids"].get<std::vector<Token>>());
    EXPECT_EQ(answer.text, model.Detokenize(answer.ids, /*skip_special=*/true));
    EXPECT_EQ(answer.finish_reason, FinishReason::kLength);
  }
}

TEST(Api, AConversationComputesOnlyWhatIsNew) {
  Session session(OpenDemo());
  std::string streamed;
  const Answer first =
      session.Say(kQuestion, Greedy(), [&](std::string_view text) { streamed += text; });
  EXPECT_EQ(first.text, kReply);
  EXPECT_EQ(streamed, kReply);
  EXPECT_EQ(first.finish_reason, FinishReason::kStop);
  EXPECT_EQ(first.reused_tokens, 0u);
  const Answer second = session.Say("What is the capital of Italy?", Greedy());
  EXPECT_EQ(second.reused_tokens, first.prompt_tokens + first.ids.size());
  ASSERT_EQ(session.messages().size(), 4u);
  EXPECT_EQ(session.messages()[3].content, second.text);

  // A model that has not seen the conversation gives the same.
  const Answer fresh =
      OpenDemo().Generate(session.model().Prompt(std::span(session.messages()).first(3)), Greedy());
  EXPECT_EQ(fresh.reused_tokens, 0u);
  EXPECT_EQ(fresh.ids, second.ids);
}

TEST(Api, UndoAgainClearAndSystem) {
  Session session(OpenDemo(), "Be brief.");
  EXPECT_FALSE(session.Undo());
  EXPECT_EQ(CodeOf([&] { session.Again(); }), ErrorCode::kUsage);
  const std::string first = session.Say(kQuestion, Greedy()).text;
  EXPECT_EQ(session.Again(Greedy()).text, first);
  EXPECT_EQ(session.messages().size(), 3u);
  session.Say("And of Italy?", Greedy(4));
  EXPECT_TRUE(session.Undo());
  ASSERT_EQ(session.messages().size(), 3u);
  EXPECT_EQ(session.messages()[2].content, first);
  session.SetSystem("Be long.");
  EXPECT_EQ(session.messages().front().content, "Be long.");
  session.Clear();
  EXPECT_EQ(session.messages().size(), 1u);
  session.SetSystem("");
  EXPECT_TRUE(session.messages().empty());
}

TEST(Api, AnErrorLeavesTheConversationAsItWas) {
  Session session(OpenDemo());
  session.Say(kQuestion, Greedy());
  std::string flood;
  for (int i = 0; i < 1200; ++i) flood += "word ";
  EXPECT_EQ(CodeOf([&] { session.Say(flood, Greedy()); }), ErrorCode::kUsage);
  EXPECT_EQ(session.messages().size(), 2u);
  EXPECT_THROW(session.Say("x", Greedy(), [](std::string_view) { throw std::logic_error("no"); }),
               std::logic_error);
  EXPECT_EQ(session.messages().size(), 2u);
}

TEST(Api, CancelKeepsWhatWasSaid) {
  Session session(OpenDemo());
  std::atomic<bool> cancel = false;
  GenerateOptions options = Greedy();
  options.ignore_eos = true;
  options.cancel = &cancel;
  const Answer answer =
      session.Say("Tell me a story.", options, [&](std::string_view) { cancel = true; });
  EXPECT_EQ(answer.finish_reason, FinishReason::kCancelled);
  EXPECT_FALSE(answer.text.empty());
  EXPECT_EQ(session.messages().back().content, answer.text);
  EXPECT_EQ(session.Say(kQuestion, options).finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(session.messages().size(), 2u);  // nothing was answered: nothing was asked
}

TEST(Api, SessionsOnManyThreadsAndRoomForOneGiveTheSame) {
  const Model roomy = OpenDemo(4);
  std::vector<Answer> alone;
  GenerateOptions options;
  options.temperature = 1.0f;
  options.max_tokens = 40;
  options.ignore_eos = true;
  for (uint64_t i = 0; i < 4; ++i) {
    options.seed = i;
    alone.push_back(Session(roomy).Say("Tell me a story.", options));
  }
  for (const uint32_t sequences : {4u, 1u}) {
    const Model model = OpenDemo(sequences);
    std::vector<Answer> together(alone.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < alone.size(); ++i) {
      threads.emplace_back([&, i, own = options]() mutable {
        own.seed = i;
        together[i] = Session(model).Say("Tell me a story.", own);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t i = 0; i < alone.size(); ++i) {
      EXPECT_EQ(together[i].ids, alone[i].ids);
      EXPECT_EQ(together[i].seed, i);
    }
  }
  EXPECT_NE(alone[0].ids, alone[1].ids);
}

TEST(Api, LogProbsAreThoseOfTheLogits) {
  const Model model = OpenDemo();
  const std::vector<Token> ids = model.Tokenize("Once upon a time, there lived a young girl.");
  const std::vector<double> log_probs = model.LogProbs(ids);
  ASSERT_EQ(log_probs.size(), ids.size() - 1);
  for (const size_t n : {size_t{1}, size_t{5}, ids.size() - 1}) {
    const std::vector<float> logits = model.Logits(std::span(ids).first(n));
    ASSERT_EQ(logits.size(), 4096u);
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    EXPECT_NEAR(log_probs[n - 1], logits[static_cast<size_t>(ids[n])] - std::log(sum), 1e-5);
  }
}

TEST(Api, Errors) {
  EXPECT_EQ(CodeOf([] { Model::Open("no/such/model"); }), ErrorCode::kNotFound);
  ModelOptions options;
  options.memory = "1MB";
  EXPECT_EQ(CodeOf([&] { Model::Open(kDemo, options); }), ErrorCode::kOutOfBudget);
  options = {};
  options.task = "nobody";
  EXPECT_EQ(CodeOf([&] { Model::Open(kDemo, options); }), ErrorCode::kUnknownName);
  options = {};
  options.context = 1u << 20;
  EXPECT_EQ(CodeOf([&] { Model::Open(kDemo, options); }), ErrorCode::kUsage);

  const Model model = OpenDemo();
  EXPECT_EQ(CodeOf([&] { model.Generate({}); }), ErrorCode::kUsage);
  const std::vector<Token> beyond = {4096};
  EXPECT_EQ(CodeOf([&] { model.Generate(beyond); }), ErrorCode::kUsage);
  EXPECT_EQ(CodeOf([&] { model.Detokenize(beyond); }), ErrorCode::kUsage);
  EXPECT_EQ(CodeOf([&] { model.Tokenize("\xff"); }), ErrorCode::kUsage);
  const Model bare = Model::Open(golden::Path("hf/llama").string());
  EXPECT_FALSE(bare.info().has_tokenizer);
  EXPECT_EQ(CodeOf([&] { bare.Tokenize("x"); }), ErrorCode::kUnsupported);
  EXPECT_EQ(bare.Generate(std::vector<Token>{1, 2, 3}, Greedy(4)).text, "");
}

// The engine's own thread reads the weights: what it meets there must not end the process.
TEST(Api, AFileThatShrinksWhileItRunsEndsTheRequest) {
  namespace fs = std::filesystem;
  std::string folder = (fs::temp_directory_path() / "moewe_api_test.XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  for (const auto& entry : fs::directory_iterator(kDemo)) {
    if (entry.is_regular_file()) fs::copy(entry.path(), folder);
  }
  {
    const Model model = Model::Open(folder);
    GenerateOptions options = Greedy(400);
    options.ignore_eos = true;
    const auto shrink = [&](std::string_view) {
      fs::resize_file(fs::path(folder) / "model.safetensors", 50000);
    };
    EXPECT_EQ(CodeOf([&] { model.Generate(model.Tokenize("Once"), options, shrink); }),
              ErrorCode::kIo);
  }
  fs::remove_all(folder);
}

// A model whose experts are read while it runs: the file that was opened is what counts.
class StreamedFile : public testing::Test {
 protected:
  StreamedFile() {
    folder_ = (std::filesystem::temp_directory_path() / "moewe_streamed.XXXXXX").string();
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    for (const auto& entry : std::filesystem::directory_iterator(kDemo)) {
      if (entry.is_regular_file()) std::filesystem::copy(entry.path(), folder_);
    }
  }
  ~StreamedFile() override { std::filesystem::remove_all(folder_); }

  std::string weights() const { return folder_ + "/model.safetensors"; }
  Model Open() const {
    ModelOptions options;
    options.memory = "min";
    return Model::Open(folder_, options);
  }
  static std::vector<Token> Answered(const Model& model, const std::function<void()>& meanwhile) {
    GenerateOptions options = Greedy(100);
    options.ignore_eos = true;
    bool done = false;
    return model
        .Generate(model.Tokenize("Once upon"), options,
                  [&](std::string_view) {
                    if (!std::exchange(done, true)) meanwhile();
                  })
        .ids;
  }

  std::string folder_;
};

TEST_F(StreamedFile, ReplacedWhileItRunsItIsReadAsItWas) {
  const Model model = Open();
  const std::vector<Token> expected = Answered(Model::Open(kDemo), [] {});
  ASSERT_TRUE(model.streaming());
  const std::string other = folder_ + "/other";
  std::ofstream(other) << std::string(1 << 20, 'x');
  EXPECT_EQ(Answered(model, [&] { std::filesystem::rename(other, weights()); }), expected);
  EXPECT_EQ(Answered(model, [] {}), expected);
  EXPECT_GT(model.streaming()->missed, 0u);
}

TEST_F(StreamedFile, TruncatedWhileItRunsItEndsRequestsNotTheProgram) {
  const Model model = Open();
  ASSERT_TRUE(model.streaming());
  const auto shrink = [&] { std::filesystem::resize_file(weights(), 50000); };
  EXPECT_EQ(CodeOf([&] { Answered(model, shrink); }), ErrorCode::kIo);
  EXPECT_EQ(CodeOf([&] { Answered(model, [] {}); }), ErrorCode::kIo);
  EXPECT_EQ(model.info().longest_context, Model::Open(kDemo).info().longest_context);
}

}  // namespace
}  // namespace moewe
