// Drafts change no answer: whatever is drafted, whoever runs beside, wherever an answer ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/prompt_lookup.h"
#include "engine/random.h"
#include "engine/scheduler.h"
#include "engine/test_model.h"
#include "golden.h"
#include "paths.h"

namespace moewe::engine {
namespace {

// Ids that have nothing to do with the text.
class Nonsense : public Drafter {
 public:
  Draft Propose(std::span<const TokenId> /*tokens*/, std::span<TokenId> out) override {
    for (TokenId& id : out) id = static_cast<TokenId>(random_.Next() % 190);
    return {out.size(), PromptLookup::kLongestMatch};
  }

 private:
  Random random_{7};
};

// Knows the answer, and is wrong now and then.
class Oracle : public Drafter {
 public:
  static inline std::vector<TokenId> text;  // prompt and answer
  static inline size_t wrong_every = 0;     // 0 = never

  Draft Propose(std::span<const TokenId> tokens, std::span<TokenId> out) override {
    size_t n = 0;
    for (size_t at = tokens.size(); n < out.size() && at < text.size(); ++n, ++at) {
      out[n] = text[at];
      if (wrong_every != 0 && at % wrong_every == 0) out[n] = (out[n] + 1) % 190;
    }
    return {n, PromptLookup::kLongestMatch};
  }
};

template <typename T>
std::unique_ptr<Drafter> Make() {
  return std::make_unique<T>();
}

SchedulerOptions NoDrafts(uint32_t chunk = 256) {
  return {.context = 512,
          .kv_blocks = 64,
          .kv_type = model::KvType::kF16,
          .chunk = chunk,
          .reuse_prefixes = false};
}

SchedulerOptions Drafting(size_t rows, std::unique_ptr<Drafter> (*make)() = nullptr) {
  SchedulerOptions options = NoDrafts();
  options.draft_rows = rows;
  options.drafts_by_gain = false;
  options.make_drafter = make;
  options.max_running = 3;  // as many as draft side by side
  options.states = 3 * model::kStatesPerSequence + 3;
  return options;
}

// A text that repeats itself, and begins as only this seed does.
std::vector<TokenId> Repetitive(size_t n, uint64_t seed) {
  Random random(seed);
  std::vector<TokenId> phrase, tokens;
  while (phrase.size() < 9) phrase.push_back(static_cast<TokenId>(3 + random.Next() % 190));
  while (tokens.size() < n) {
    if (random.Next() % 4 == 0) tokens.push_back(static_cast<TokenId>(3 + random.Next() % 190));
    tokens.insert(tokens.end(), phrase.begin(), phrase.end());
  }
  tokens.resize(n);
  return tokens;
}

Request Ask(std::vector<TokenId> prompt, uint32_t max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0.0f;
  request.max_tokens = max_tokens;
  return request;
}

// Greedy, drawn, with each kind of penalty and a bias.
std::vector<Request> Requests() {
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 6; ++i) {
    Request request = Ask(Repetitive(20 + 11 * i, i), 40);
    request.sampling.seed = 40 + i;
    if (i >= 2) request.sampling.temperature = i == 2 ? 0.2f : 0.9f;
    if (i == 3) request.sampling.repetition_penalty = 1.3f;
    if (i == 4) {
      request.sampling.presence_penalty = 0.4f;
      request.sampling.frequency_penalty = 0.2f;
      request.sampling.penalty_window = 16;
    }
    if (i == 5) {
      request.sampling.top_k = 20;
      request.sampling.logit_bias = {{request.prompt[0], 2.0f}, {request.prompt[1], 2.0f}};
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

struct Answers {
  std::vector<Result> results;
  std::vector<std::vector<float>> rows;
  Scheduler::Stats stats;
};

Answers AnswerAll(TestModel& test, const SchedulerOptions& options, std::vector<Request> requests,
                  bool together = false) {
  WatchedModel watched(test.model.get());
  Scheduler scheduler(&watched, test.tokenizer.get(), options);
  Answers outcome;
  outcome.results.resize(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    scheduler.Validate(requests[i]);
    scheduler.Add(std::move(requests[i]),
                  [&, i](Result result) { outcome.results[i] = std::move(result); });
    while (!together && scheduler.Step()) continue;
  }
  while (scheduler.Step()) continue;
  outcome.rows = watched.SortedRows();
  outcome.stats = scheduler.stats();
  return outcome;
}

void ExpectSameAnswers(const Answers& actual, const Answers& expected) {
  ASSERT_EQ(actual.results.size(), expected.results.size());
  for (size_t i = 0; i < actual.results.size(); ++i) {
    EXPECT_FALSE(actual.results[i].error);
    EXPECT_EQ(actual.results[i].ids, expected.results[i].ids) << "request " << i;
    EXPECT_EQ(actual.results[i].text, expected.results[i].text) << "request " << i;
    EXPECT_EQ(actual.results[i].finish_reason, expected.results[i].finish_reason);
  }
  // Every row that a token was drawn from is there, bit for bit, among those of drafts that failed.
  EXPECT_TRUE(std::ranges::includes(actual.rows, expected.rows)) << "logits differ";
}

struct DraftedModel {
  const char* name;
  std::string path;
};

std::string GoldenModel(const std::string& family) { return golden::Path("hf/" + family).string(); }

class Speculation : public testing::TestWithParam<DraftedModel> {};

TEST_P(Speculation, ChangesNoAnswer) {
  for (const kernels::Activations activations :
       {kernels::Activations::kF32, kernels::Activations::kInt8}) {
    TestModel test(GetParam().path, activations, 2);
    const Answers expected = AnswerAll(test, NoDrafts(), Requests());
    EXPECT_EQ(expected.stats.drafted_tokens, 0u);
    for (const bool together : {false, true}) {
      for (const size_t rows : {1u, 3u, 8u}) {
        SCOPED_TRACE(std::to_string(rows) + (together ? " together" : ""));
        ExpectSameAnswers(AnswerAll(test, Drafting(rows), Requests(), together), expected);
        const Answers nonsense =
            AnswerAll(test, Drafting(rows, Make<Nonsense>), Requests(), together);
        ExpectSameAnswers(nonsense, expected);
        EXPECT_GT(nonsense.stats.drafted_tokens, 50u);
      }
      SchedulerOptions by_gain = Drafting(8);
      by_gain.drafts_by_gain = true;
      ExpectSameAnswers(AnswerAll(test, by_gain, Requests(), together), expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, Speculation,
    testing::Values(DraftedModel{"qwen3_moe", GoldenModel("qwen3_moe")},
                    DraftedModel{"sliding", GoldenModel("gemma3")},
                    DraftedModel{"latent", GoldenModel("deepseek_v3")},
                    DraftedModel{"looped", GoldenModel("looped")},
                    DraftedModel{"gated_delta", GoldenModel("qwen3_next")},
                    DraftedModel{"kimi_delta", GoldenModel("kimi_linear")},
                    DraftedModel{"short_conv", GoldenModel("lfm2_moe")},
                    DraftedModel{"granite", GoldenModel("granitemoe")},
                    DraftedModel{"q4tp", golden::Path("cmf/files/moe_qwen3_q4tp.cmf").string()},
                    DraftedModel{"demo", paths::DemoModel()}),
    [](const auto& test) { return std::string(test.param.name); });

// Heads of models that were never trained, which are nearly always wrong: no answer depends on
// them, whatever runs beside, steps back or was there before.
class HeadDrafts : public testing::TestWithParam<const char*> {};

TEST_P(HeadDrafts, ChangeNoAnswer) {
  for (const kernels::Activations activations :
       {kernels::Activations::kF32, kernels::Activations::kInt8}) {
    TestModel plain(GoldenModel(GetParam()), activations, 2);
    TestModel test(GoldenModel(GetParam()), activations, 2, /*draft_head=*/true);
    ASSERT_TRUE(test.model->has_draft_head());
    const Answers expected = AnswerAll(plain, NoDrafts(), Requests());
    for (const bool together : {false, true}) {
      for (const uint32_t chunk : {7u, 256u}) {
        for (const size_t rows : {1u, 4u}) {
          SCOPED_TRACE(std::to_string(rows) + (together ? " together" : ""));
          SchedulerOptions options = Drafting(rows);
          options.chunk = chunk;
          options.reuse_prefixes = together;
          const Answers outcome = AnswerAll(test, options, Requests(), together);
          ExpectSameAnswers(outcome, expected);
          EXPECT_GT(outcome.stats.drafted_tokens, 25u);
        }
      }
      SchedulerOptions by_gain = Drafting(8);
      by_gain.drafts_by_gain = true;
      ExpectSameAnswers(AnswerAll(test, by_gain, Requests(), together), expected);
    }
  }
}

TEST_P(HeadDrafts, GoOnAfterAnswersThatShareABeginning) {
  TestModel test(GoldenModel(GetParam()), kernels::Activations::kF32, 2, /*draft_head=*/true);
  SchedulerOptions options = Drafting(3);
  options.reuse_prefixes = true;
  Scheduler scheduler(test.model.get(), nullptr, options);
  std::vector<TokenId> prompt = Repetitive(40, 3);
  for (int turn = 0; turn < 4; ++turn) {
    const Request request = Ask(prompt, 20);
    Result result;
    scheduler.Add(request, [&](Result r) { result = std::move(r); });
    while (scheduler.Step()) continue;
    EXPECT_EQ(result.ids, AnswerAll(test, NoDrafts(), {request}).results[0].ids);
    EXPECT_GT(result.drafts.drafted, 10u);
    EXPECT_EQ(result.reused_tokens > 0, turn > 0);
    if (turn % 2 == 0) prompt.insert(prompt.end(), result.ids.begin(), result.ids.end());
    prompt.push_back(7 + turn);
  }
}

// What the head has cached is what a fresh sequence's has, whatever of its drafts was right: its
// logits are the same bits.
TEST_P(HeadDrafts, CacheIsThatOfAFreshSequence) {
  // Knows the answer, with errors, and checks what the head says instead.
  class Checked : public WatchedModel {
   public:
    using WatchedModel::WatchedModel;
    size_t Draft(model::Sequence* sequence, TokenId token, std::span<TokenId> out,
                 std::vector<float>*) override {
      const size_t length = sequence->length();
      std::vector<float> said, expected;
      const size_t n = WatchedModel::Draft(sequence, token, out.first(1), &said);
      EXPECT_EQ(n, 1u);
      model::KvPool pool(config(), model::KvType::kF16, 16);
      model::Sequence fresh(&pool);
      const model::SequenceChunk all{&fresh, std::span<const TokenId>(Oracle::text).first(length),
                                     model::SequenceChunk::Logits::kNone};
      WatchedModel::Forward({&all, 1}, &expected, nullptr);
      expected.clear();
      fresh.Reserve(1);
      TokenId again = 0;
      EXPECT_EQ(WatchedModel::Draft(&fresh, token, {&again, 1}, &expected), 1u);
      EXPECT_EQ(said, expected) << "after " << length << " tokens";
      for (size_t i = 0; i < out.size(); ++i) {
        const size_t at = length + 1 + i;
        out[i] = at < Oracle::text.size() ? Oracle::text[at] : 0;
        if (at % 5 < 2) out[i] = (out[i] + 1) % 190;
      }
      return out.size();
    }
  };
  TestModel test(GoldenModel(GetParam()), kernels::Activations::kF32, 2, /*draft_head=*/true);
  const std::vector<TokenId> prompt = Repetitive(20, 5);
  const Answers plain = AnswerAll(test, NoDrafts(), {Ask(prompt, 30)});
  Oracle::text = prompt;
  Oracle::text.insert(Oracle::text.end(), plain.results[0].ids.begin(), plain.results[0].ids.end());
  Checked checked(test.model.get());
  SchedulerOptions options = Drafting(3);
  options.chunk = 6;
  Scheduler scheduler(&checked, nullptr, options);
  Result result;
  scheduler.Add(Ask(prompt, 30), [&](Result r) { result = std::move(r); });
  while (scheduler.Step()) continue;
  EXPECT_EQ(result.ids, plain.results[0].ids);
  EXPECT_GT(checked.drafts, 5u);
  EXPECT_GT(result.drafts.accepted, 5u);
  EXPECT_LT(result.drafts.accepted, result.drafts.drafted);
}

INSTANTIATE_TEST_SUITE_P(Models, HeadDrafts,
                         testing::Values("qwen3_next", "qwen3_5", "qwen3_5_moe", "deepseek_v3"),
                         [](const auto& test) { return std::string(test.param); });

// A head that always knows: every step gives one token more than without.
TEST(SpeculationSteps, AHeadThatIsRightSparesSteps) {
  // Repeats the token that it reads.
  class Echo : public WatchedModel {
   public:
    using WatchedModel::WatchedModel;
    bool has_draft_head() const override { return true; }
    size_t Draft(model::Sequence*, TokenId token, std::span<TokenId> out,
                 std::vector<float>*) override {
      std::ranges::fill(out, token);
      return out.size();
    }
  };
  TestModel test(GoldenModel("qwen3_moe"));
  Echo echo(test.model.get());
  SchedulerOptions options = Drafting(2);
  Request request = Ask({5, 9, 11}, 30);
  request.sampling.logit_bias = {{42, 1e6f}};  // an answer of one token, over and over
  Scheduler scheduler(&echo, nullptr, options);
  Result result;
  scheduler.Add(request, [&](Result r) { result = std::move(r); });
  while (scheduler.Step()) continue;
  EXPECT_EQ(result.ids, std::vector<TokenId>(30, 42));
  EXPECT_EQ(result.drafts.accepted, result.drafts.drafted);
  EXPECT_EQ(result.drafts.steps, 10u);  // three tokens each, the last one two
}

// A head's fault is said, and costs drafts only.
TEST(SpeculationSteps, AHeadThatFailsDraftsNoMore) {
  class Broken : public WatchedModel {
   public:
    using WatchedModel::WatchedModel;
    bool has_draft_head() const override { return true; }
    size_t Draft(model::Sequence*, TokenId, std::span<TokenId>, std::vector<float>*) override {
      ++drafts;
      throw Error(ErrorCode::kHashMismatch, "an expert of the head");
    }
  };
  TestModel test(GoldenModel("qwen3_moe"));
  Broken broken(test.model.get());
  Scheduler scheduler(&broken, nullptr, Drafting(2));
  const Request request = Ask({5, 9, 11}, 30);
  Result result;
  scheduler.Add(request, [&](Result r) { result = std::move(r); });
  while (scheduler.Step()) continue;
  EXPECT_EQ(result.ids, AnswerAll(test, NoDrafts(), {request}).results[0].ids);
  EXPECT_EQ(broken.drafts, 1u);
}

// What is right is taken, as many tokens a step as there are.
class RightDrafts : public testing::TestWithParam<const char*> {};

TEST_P(RightDrafts, SpareSteps) {
  TestModel test(GoldenModel(GetParam()));
  const std::vector<TokenId> prompt = Repetitive(30, 1);
  const Answers plain = AnswerAll(test, NoDrafts(), {Ask(prompt, 41)});
  Oracle::text = prompt;
  Oracle::text.insert(Oracle::text.end(), plain.results[0].ids.begin(), plain.results[0].ids.end());
  for (const auto& [wrong_every, steps] : {std::pair{0u, 8u}, std::pair{6u, 0u}}) {
    Oracle::wrong_every = wrong_every;
    const Answers outcome = AnswerAll(test, Drafting(4, Make<Oracle>), {Ask(prompt, 41)});
    ExpectSameAnswers(outcome, plain);
    const DraftStats& stats = outcome.results[0].drafts;
    EXPECT_EQ(stats.steps + stats.accepted, 40u);  // the first token is the prompt's
    EXPECT_EQ(outcome.stats.steps, 1 + stats.steps);
    EXPECT_EQ(outcome.stats.accepted_tokens, stats.accepted);
    EXPECT_EQ(outcome.stats.drafted_tokens, stats.drafted);
    if (wrong_every == 0) {
      EXPECT_EQ(stats.steps, steps);
      EXPECT_EQ(stats.drafted, stats.accepted);
      EXPECT_EQ(stats.speed_up(), 0.0);  // no plain step to compare with
    } else {
      EXPECT_GT(stats.accepted, 20u);
      EXPECT_LT(stats.accepted, stats.drafted);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RightDrafts, testing::Values("qwen3_moe", "qwen3_next"),
                         [](const auto& test) { return std::string(test.param); });

// The states of recurrent layers do not go back into a step: what was right before a wrong draft is
// computed again, once, as the first rows of the next step.
TEST(SpeculationSteps, RecurrentLayersComputeTheRightOnesAgain) {
  TestModel test(GoldenModel("qwen3_next"));
  const std::vector<TokenId> prompt = Repetitive(30, 1);
  const Answers plain = AnswerAll(test, NoDrafts(), {Ask(prompt, 41)});
  Oracle::text = prompt;
  Oracle::text.insert(Oracle::text.end(), plain.results[0].ids.begin(), plain.results[0].ids.end());
  for (const size_t wrong_every : {1u, 3u, 7u}) {
    Oracle::wrong_every = wrong_every;
    const Answers outcome = AnswerAll(test, Drafting(4, Make<Oracle>), {Ask(prompt, 41)});
    ExpectSameAnswers(outcome, plain);
    const DraftStats& stats = outcome.results[0].drafts;
    const uint64_t rows = prompt.size() + stats.steps + stats.drafted;
    if (wrong_every == 1) {
      EXPECT_EQ(outcome.stats.computed_tokens, rows);
    } else {
      EXPECT_GT(outcome.stats.computed_tokens, rows);
      EXPECT_LE(outcome.stats.computed_tokens, rows + stats.accepted);
    }
  }
}

// An answer may end at any token of a draft, by any rule, and leaves what plain decoding leaves.
TEST(SpeculationSteps, AnswersEndInsideOfDrafts) {
  TestModel test(paths::DemoModel());
  const std::vector<TokenId> prompt =
      test.tokenizer->Encode("Once upon a time, in a deep forest, there lived");
  const Answers whole = AnswerAll(test, NoDrafts(), {Ask(prompt, 30)});
  Oracle::wrong_every = 0;
  Oracle::text = prompt;
  Oracle::text.insert(Oracle::text.end(), whole.results[0].ids.begin(), whole.results[0].ids.end());
  const std::string text = whole.results[0].text;
  std::vector<std::pair<Request, uint32_t>> cases;  // with the context
  for (uint32_t n = 1; n < 16; ++n) {
    cases.emplace_back(Ask(prompt, n), 512);
    cases.emplace_back(Ask(prompt, 0), static_cast<uint32_t>(prompt.size()) + n);
    Request end_token = Ask(prompt, 30);
    end_token.eos_ids = {whole.results[0].ids[n]};
    cases.emplace_back(std::move(end_token), 512);
    Request stop = Ask(prompt, 30);
    stop.stops = {text.substr(3 * n, 4)};
    cases.emplace_back(std::move(stop), 512);
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    auto& [request, context] = cases[i];
    std::vector<size_t> reused;
    std::vector<Answers> outcomes;
    for (const bool drafts : {false, true}) {
      SchedulerOptions options = drafts ? Drafting(8, Make<Oracle>) : NoDrafts();
      options.context = context;
      options.reuse_prefixes = true;
      Scheduler scheduler(test.model.get(), test.tokenizer.get(), options);
      Answers outcome;
      std::string shown;
      request.on_text = [&](std::string_view piece) { shown += piece; };
      outcome.results.resize(2);
      scheduler.Add(request, [&](Result r) { outcome.results[0] = std::move(r); });
      while (scheduler.Step()) continue;
      EXPECT_EQ(shown, outcome.results[0].text);
      // The same again, with what the first one left.
      Request again = request;
      again.prompt.insert(again.prompt.end(), outcome.results[0].ids.begin(),
                          outcome.results[0].ids.end());
      if (again.prompt.size() < context) {
        scheduler.Add(again, [&](Result r) { outcome.results[1] = std::move(r); });
        while (scheduler.Step()) continue;
        reused.push_back(outcome.results[1].reused_tokens);
      }
      outcomes.push_back(std::move(outcome));
    }
    ExpectSameAnswers(outcomes[1], outcomes[0]);
    if (reused.size() == 2) {
      EXPECT_EQ(reused[0], reused[1]);
    }
  }
}

// Keys and values of drafts that were taken back are nobody's: an answer that goes another way over
// the same positions is what it is without any history.
TEST(SpeculationSteps, WhatWasTakenBackIsNotReused) {
  TestModel test(GoldenModel("qwen3_moe"));
  SchedulerOptions options = Drafting(8, Make<Nonsense>);
  options.reuse_prefixes = true;
  WatchedModel watched(test.model.get());
  Scheduler scheduler(&watched, nullptr, options);
  std::vector<TokenId> prompt = Repetitive(30, 2);
  for (int turn = 0; turn < 6; ++turn) {
    Request request = Ask(prompt, 17);
    request.sampling.temperature = 0.8f;
    request.sampling.seed = static_cast<uint64_t>(turn);
    Result result;
    scheduler.Add(request, [&](Result r) { result = std::move(r); });
    while (scheduler.Step()) continue;
    const Answers fresh = AnswerAll(test, NoDrafts(), {request});
    EXPECT_EQ(result.ids, fresh.results[0].ids);
    EXPECT_EQ(result.reused_tokens, turn == 0 ? 0u : prompt.size() - 3);
    EXPECT_GT(result.drafts.drafted, 20u);
    prompt.insert(prompt.end(), result.ids.begin(), result.ids.end());
    prompt.insert(prompt.end(), {5, 6});
  }
}

TEST(SpeculationSteps, ATightCacheSendsNobodyBackForDrafts) {
  TestModel test(GoldenModel("llama"));
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 3; ++i) requests.push_back(Ask(Repetitive(50, i), 60));
  const Answers expected = AnswerAll(test, NoDrafts(), requests);
  SchedulerOptions tight = NoDrafts();
  SchedulerOptions drafting = Drafting(8, Make<Nonsense>);
  for (const size_t blocks : {4u, 5u, 7u, 12u}) {
    SCOPED_TRACE(blocks);
    tight.kv_blocks = drafting.kv_blocks = blocks;
    const Answers plain = AnswerAll(test, tight, requests, /*together=*/true);
    const Answers outcome = AnswerAll(test, drafting, requests, /*together=*/true);
    ExpectSameAnswers(outcome, expected);
    EXPECT_LE(outcome.stats.preemptions, plain.stats.preemptions);
    EXPECT_GT(outcome.stats.drafted_tokens, 0u);
  }
}

// A fault that only a draft meets is none of the request's.
TEST(SpeculationSteps, AFaultOfADraftChangesNothing) {
  TestModel test(GoldenModel("qwen3_moe"));
  const Answers expected = AnswerAll(test, NoDrafts(), Requests());
  WatchedModel watched(test.model.get());
  size_t faults = 0;
  watched.before = [&](const model::SequenceChunk& chunk) {
    if (chunk.logits != model::SequenceChunk::Logits::kAll) return;
    ++faults;
    throw Error(ErrorCode::kHashMismatch, "an expert");
  };
  Scheduler scheduler(&watched, nullptr, Drafting(4));
  Answers outcome;
  outcome.results.resize(expected.results.size());
  std::vector<Request> requests = Requests();
  for (size_t i = 0; i < requests.size(); ++i) {
    scheduler.Add(requests[i], [&, i](Result r) { outcome.results[i] = std::move(r); });
  }
  while (scheduler.Step()) continue;
  outcome.rows = watched.SortedRows();
  ExpectSameAnswers(outcome, expected);
  EXPECT_GT(faults, 0u);
}

TEST(SpeculationSteps, OffWhereItCannotBeOrDoesNotPay) {
  TestModel test(GoldenModel("qwen3_moe"));
  const auto drafted = [&](size_t requests, bool by_gain) {
    SchedulerOptions options = Drafting(4, Make<Nonsense>);
    options.drafts_by_gain = by_gain;
    options.max_running = 64;
    Scheduler scheduler(test.model.get(), nullptr, options);
    for (size_t i = 0; i < requests; ++i) {
      scheduler.Add(Ask(Repetitive(20, i), 30), [](Result) {});
    }
    while (scheduler.Step()) continue;
    return scheduler.stats().drafted_tokens;
  };
  EXPECT_GT(drafted(1, false), 0u);
  EXPECT_GT(drafted(1, true), 0u);
  EXPECT_EQ(drafted(2, true), 0u);
  EXPECT_GT(drafted(4, false), 0u);
  EXPECT_EQ(drafted(5, false), 0u);
}

// Never more rows in a step than memory is planned for, and none while prompts are computed.
class DraftRows : public testing::TestWithParam<const char*> {};

TEST_P(DraftRows, AreAsManyAsPlanned) {
  TestModel test(GoldenModel(GetParam()));
  WatchedModel watched(test.model.get());
  size_t rows = 0, most = 0, prompt_rows = 0, draft_rows = 0;
  watched.before = [&](const model::SequenceChunk& chunk) {
    rows += chunk.tokens.size();
    const bool draft = chunk.logits == model::SequenceChunk::Logits::kAll;
    (draft ? draft_rows : prompt_rows) += chunk.tokens.size() - 1;
  };
  Scheduler scheduler(&watched, nullptr, Drafting(5, Make<Nonsense>));
  for (uint64_t i = 0; i < 3; ++i) {
    scheduler.Add(Ask(Repetitive(20 + i, i), 30), [](Result) {});
    for (int step = 0; step < 3; ++step) {
      rows = prompt_rows = draft_rows = 0;
      scheduler.Step();
      EXPECT_TRUE(prompt_rows == 0 || draft_rows == 0);
    }
  }
  do {
    most = std::max(most, rows);
    rows = 0;
  } while (scheduler.Step());
  EXPECT_EQ(most, 3u + 5u);
}

INSTANTIATE_TEST_SUITE_P(Models, DraftRows, testing::Values("qwen3_moe", "qwen3_next"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace moewe::engine
