#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <array>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "engine/test_model.h"
#include "golden.h"

namespace moewe::engine {
namespace {

using kernels::Activations;

std::string Hf(const std::string& family) { return golden::Path("hf/" + family).string(); }

SchedulerOptions Options(uint32_t chunk = 256, size_t blocks = 64) {
  return {.context = 512,
          .kv_blocks = blocks,
          .states = 32,
          .kv_type = model::KvType::kF16,
          .chunk = chunk};
}

std::vector<TokenId> Tokens(size_t n, uint64_t seed) {
  Random random(seed);
  std::vector<TokenId> tokens;
  while (tokens.size() < n) tokens.push_back(static_cast<TokenId>(3 + random.Next() % 200));
  return tokens;
}

Request Greedy(std::vector<TokenId> prompt, uint32_t max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0.0f;
  request.max_tokens = max_tokens;
  return request;
}

// Requests that differ in everything: lengths below, at and above blocks and windows; greedy,
// drawn, with penalties. The second and third begin alike, by more than a block.
std::vector<Request> MixedRequests() {
  std::vector<Request> requests;
  const size_t lengths[] = {1, 45, 51, 32, 70};
  for (size_t i = 0; i < std::size(lengths); ++i) {
    Request request = Greedy(Tokens(lengths[i], i == 2 ? 1 : i), static_cast<uint32_t>(5 + 4 * i));
    if (i % 2 == 1) request.sampling.temperature = 1.3f;
    if (i == 3) request.sampling.repetition_penalty = 1.4f;
    if (i == 2) request.prompt.back() = 7;
    request.sampling.seed = 100 + i;
    requests.push_back(std::move(request));
  }
  return requests;
}

struct Outcome {
  std::vector<Result> results;
  std::vector<std::vector<float>> rows;
  Scheduler::Stats stats;
  size_t widest = 0;
};

Outcome RunAll(TestModel& test, const SchedulerOptions& options, std::vector<Request> requests,
               bool together) {
  WatchedModel watched(test.model.get());
  Scheduler scheduler(&watched, test.tokenizer.get(), options);
  Outcome outcome;
  outcome.results.resize(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    scheduler.Validate(requests[i]);
    scheduler.Add(std::move(requests[i]),
                  [&, i](Result result) { outcome.results[i] = std::move(result); });
    // Together, but not in step with each other.
    if (together) {
      scheduler.Step();
    } else {
      while (scheduler.Step()) continue;
    }
  }
  while (scheduler.Step()) continue;
  outcome.rows = watched.SortedRows();
  outcome.widest = watched.widest;
  outcome.stats = scheduler.stats();
  return outcome;
}

void ExpectSame(const Outcome& actual, const Outcome& expected) {
  ASSERT_EQ(actual.results.size(), expected.results.size());
  for (size_t i = 0; i < actual.results.size(); ++i) {
    EXPECT_FALSE(actual.results[i].error);
    EXPECT_EQ(actual.results[i].ids, expected.results[i].ids) << "request " << i;
    EXPECT_EQ(actual.results[i].text, expected.results[i].text) << "request " << i;
    EXPECT_EQ(actual.results[i].finish_reason, expected.results[i].finish_reason);
  }
  EXPECT_TRUE(actual.rows == expected.rows) << "logits differ";
}

struct Case {
  const char* name;
  std::string path;
};

class Circumstances : public testing::TestWithParam<Case> {};

// Every row of logits is the same, bit for bit.
TEST_P(Circumstances, ChangeNoResult) {
  for (const Activations activations : {Activations::kF32, Activations::kInt8}) {
    TestModel alone(GetParam().path, activations, 1);
    SchedulerOptions plain = Options();
    plain.reuse_prefixes = false;
    const Outcome expected = RunAll(alone, plain, MixedRequests(), /*together=*/false);
    ASSERT_EQ(expected.results[0].ids.size(), 5u);
    ASSERT_EQ(expected.widest, 1u);

    for (const int threads : {1, 2, 4}) {
      TestModel test(GetParam().path, activations, threads);
      for (const uint32_t chunk : {1u, 3u, 7u, 256u}) {
        for (const bool reuse : {false, true}) {
          SCOPED_TRACE(std::to_string(threads) + " threads, chunk " + std::to_string(chunk) +
                       (reuse ? ", prefixes reused" : "") +
                       (activations == Activations::kF32 ? ", f32" : ", int8"));
          SchedulerOptions options = Options(chunk);
          options.reuse_prefixes = reuse;
          const Outcome actual = RunAll(test, options, MixedRequests(), /*together=*/true);
          ExpectSame(actual, expected);
          EXPECT_GT(actual.widest, 1u);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, Circumstances,
    testing::Values(Case{"qwen3_moe", Hf("qwen3_moe")}, Case{"gemma3_sliding", Hf("gemma3")},
                    Case{"latent", Hf("deepseek_v3")}, Case{"convolutions", Hf("lfm2_moe")},
                    Case{"delta_rule", Hf("qwen3_next")}, Case{"kda", Hf("kimi_linear")},
                    Case{"q4tp_moe", golden::Path("cmf/files/moe_qwen3_q4tp.cmf").string()}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(Scheduler, PromptsAreComputedBesideDecoding) {
  TestModel test(Hf("llama"));
  WatchedModel watched(test.model.get());
  Scheduler scheduler(&watched, nullptr, Options(/*chunk=*/8));
  size_t tokens_while_prefilling = 0;
  bool first_done = false;
  scheduler.Add(Greedy(Tokens(4, 1), 12), [&](Result) { first_done = true; });
  scheduler.Step();
  scheduler.Add(Greedy(Tokens(64, 2), 1), [&](Result) {});
  watched.before = [&](const model::SequenceChunk& chunk) {
    EXPECT_LE(chunk.tokens.size(), 8u);
    if (chunk.tokens.size() == 1) ++tokens_while_prefilling;
  };
  for (int i = 0; i < 7; ++i) scheduler.Step();
  EXPECT_EQ(tokens_while_prefilling, 7u);
  while (scheduler.Step()) continue;
  EXPECT_TRUE(first_done);
}

TEST(Scheduler, APromptThatBeginsLikeAnEndedSequenceComputesOnlyTheRest) {
  TestModel test(Hf("qwen3_moe"));
  Scheduler scheduler(test.model.get(), nullptr, Options());
  Result first, second, third;
  scheduler.Add(Greedy(Tokens(40, 1), 10), [&](Result r) { first = std::move(r); });
  while (scheduler.Step()) continue;
  EXPECT_EQ(first.reused_tokens, 0u);

  // The conversation goes on: all but the last token of the answer is there.
  std::vector<TokenId> longer = Tokens(40, 1);
  longer.insert(longer.end(), first.ids.begin(), first.ids.end());
  longer.insert(longer.end(), {5, 6, 7});
  const uint64_t before = scheduler.stats().computed_tokens;
  scheduler.Add(Greedy(longer, 1), [&](Result r) { second = std::move(r); });
  while (scheduler.Step()) continue;
  EXPECT_EQ(second.reused_tokens, 49u);
  EXPECT_EQ(scheduler.stats().computed_tokens - before, 4u);

  // Another way on from its middle, and the first is still whole.
  std::vector<TokenId> other(longer.begin(), longer.begin() + 37);
  other.push_back(9);
  scheduler.Add(Greedy(other, 1), [&](Result r) { third = std::move(r); });
  while (scheduler.Step()) continue;
  EXPECT_EQ(third.reused_tokens, 37u);
  scheduler.Add(Greedy(longer, 1), [&](Result r) { third = std::move(r); });
  while (scheduler.Step()) continue;
  EXPECT_EQ(third.reused_tokens, longer.size() - 1);
  EXPECT_EQ(third.ids, second.ids);
}

TEST(Scheduler, RecurrentLayersAreReusedFromWhereAStateWasKept) {
  TestModel test(Hf("qwen3_next"));
  SchedulerOptions plain = Options(16);
  plain.reuse_prefixes = false;
  Scheduler fresh(test.model.get(), nullptr, plain);
  Scheduler scheduler(test.model.get(), nullptr, Options(16));
  const auto run = [](Scheduler& by, const std::vector<TokenId>& prompt, uint32_t n) {
    Result result;
    by.Add(Greedy(prompt, n), [&](Result r) { result = std::move(r); });
    while (by.Step()) continue;
    return result;
  };
  const Result first = run(scheduler, Tokens(40, 1), 10);
  EXPECT_EQ(first.ids, run(fresh, Tokens(40, 1), 10).ids);

  // On from the end of its prompt, where another answer was given; from its own end; from the
  // middle of the prompt, where its first chunk ended.
  std::vector<TokenId> longer = Tokens(40, 1);
  longer.insert(longer.end(), first.ids.begin(), first.ids.end());
  longer.insert(longer.end(), {5, 6, 7});
  std::vector<TokenId> edited = Tokens(40, 1);
  edited.insert(edited.end(), {9, 9, 9});
  std::vector<TokenId> early = Tokens(36, 1);
  early.push_back(9);
  for (const auto& [prompt, reused] :
       {std::pair{edited, 40u}, std::pair{longer, 49u}, std::pair{early, 16u}}) {
    const Result result = run(scheduler, prompt, 8);
    EXPECT_EQ(result.reused_tokens, reused);
    EXPECT_EQ(result.ids, run(fresh, prompt, 8).ids);
  }
}

TEST(Scheduler, FewStatesOfRecurrentLayersChangeNoResult) {
  TestModel test(Hf("lfm2_moe"));
  SchedulerOptions roomy = Options();
  roomy.reuse_prefixes = false;
  const Outcome expected = RunAll(test, roomy, MixedRequests(), false);
  for (const size_t states : {2u, 3u, 4u, 7u}) {
    SCOPED_TRACE(states);
    SchedulerOptions tight = Options(8);
    tight.states = states;
    const Outcome outcome = RunAll(test, tight, MixedRequests(), true);
    ExpectSame(outcome, expected);
    EXPECT_LE(outcome.widest, states / model::kStatesToRun);
  }
}

TEST(Scheduler, FullCacheGivesUpEndedSequencesAndSendsTheYoungestBack) {
  TestModel test(Hf("llama"));
  SchedulerOptions roomy = Options();
  roomy.reuse_prefixes = false;
  std::vector<Request> requests;
  // Each grows from 2 blocks to 4; five blocks hold two prompts and one whole answer.
  for (uint64_t i = 0; i < 3; ++i) requests.push_back(Greedy(Tokens(50, i), 60));
  const Outcome expected = RunAll(test, roomy, requests, false);
  const Outcome tight = RunAll(test, Options(256, 5), requests, true);
  ExpectSame(tight, expected);
  EXPECT_GT(tight.stats.preemptions, 0u);
  EXPECT_GT(tight.widest, 1u);
}

TEST(Scheduler, ARequestThatDoesNotFitAloneEndsAlone) {
  TestModel test(Hf("llama"));
  Scheduler scheduler(test.model.get(), nullptr, Options(256, 3));
  Result large, small;
  scheduler.Add(Greedy(Tokens(60, 1), 200), [&](Result r) { large = std::move(r); });
  scheduler.Add(Greedy(Tokens(5, 2), 3), [&](Result r) { small = std::move(r); });
  while (scheduler.Step()) continue;
  ASSERT_TRUE(large.error);
  EXPECT_EQ(large.error->code(), ErrorCode::kOutOfBudget);
  EXPECT_EQ(large.finish_reason, FinishReason::kError);
  EXPECT_EQ(large.ids.size(), 3u * model::kBlockTokens - 60u + 1u);
  EXPECT_FALSE(small.error);
  EXPECT_EQ(small.ids.size(), 3u);
  EXPECT_THROW(scheduler.Validate(Greedy(Tokens(97, 1), 1)), Error);
}

// Three requests in one batch, of which the second has a fault.
std::vector<Result> WithFault(const std::function<void(WatchedModel&, TokenId)>& disturb,
                              std::vector<Result>* undisturbed) {
  TestModel test(Hf("qwen3_moe"));
  constexpr TokenId kMarked = 211;  // in no other prompt
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 3; ++i) requests.push_back(Greedy(Tokens(20, i), 8));
  requests[1].prompt[10] = kMarked;
  std::vector<Result> results(3);
  for (std::vector<Result>* out : {undisturbed, &results}) {
    WatchedModel watched(test.model.get());
    if (out == &results) disturb(watched, kMarked);
    Scheduler scheduler(&watched, nullptr, Options());
    out->resize(3);
    for (size_t i = 0; i < 3; ++i) {
      scheduler.Add(requests[i], [out, i](Result r) { (*out)[i] = std::move(r); });
    }
    while (scheduler.Step()) continue;
  }
  return results;
}

bool Has(const model::SequenceChunk& chunk, TokenId id) {
  return std::ranges::find(chunk.tokens, id) != chunk.tokens.end();
}

TEST(Scheduler, AFaultInTheModelEndsTheRequestThatMeetsIt) {
  std::vector<Result> expected;
  const std::vector<Result> results = WithFault(
      [](WatchedModel& model, TokenId marked) {
        model.before = [marked](const model::SequenceChunk& chunk) {
          if (Has(chunk, marked)) throw Error(ErrorCode::kHashMismatch, "an expert");
        };
      },
      &expected);
  ASSERT_TRUE(results[1].error);
  EXPECT_EQ(results[1].error->code(), ErrorCode::kHashMismatch);
  for (const size_t i : {0u, 2u}) EXPECT_EQ(results[i].ids, expected[i].ids);
}

TEST(Scheduler, LogitsThatAreNotNumbersEndOneRequest) {
  std::vector<Result> expected;
  const std::vector<Result> results = WithFault(
      [](WatchedModel& model, TokenId marked) {
        model.after = [marked](const model::SequenceChunk& chunk, std::span<float> row) {
          if (Has(chunk, marked)) row[17] = std::numeric_limits<float>::quiet_NaN();
        };
      },
      &expected);
  ASSERT_TRUE(results[1].error);
  EXPECT_EQ(results[1].error->code(), ErrorCode::kInternal);
  EXPECT_NE(results[1].error->message().find("not finite"), std::string::npos);
  for (const size_t i : {0u, 2u}) EXPECT_EQ(results[i].ids, expected[i].ids);
}

TEST(Scheduler, CancellingOneLeavesTheOthers) {
  TestModel test(Hf("llama"));
  const Outcome expected = RunAll(test, Options(), {Greedy(Tokens(20, 1), 20)}, false);
  Scheduler scheduler(test.model.get(), nullptr, Options(256, 4));
  std::atomic<bool> cancel_running = false, cancel_waiting = false;
  Result kept, running, waiting;
  Request second = Greedy(Tokens(20, 2), 100);
  second.cancel = &cancel_running;
  Request third = Greedy(Tokens(100, 3), 10);  // has no room until the others end
  third.cancel = &cancel_waiting;
  scheduler.Add(Greedy(Tokens(20, 1), 20), [&](Result r) { kept = std::move(r); });
  scheduler.Add(std::move(second), [&](Result r) { running = std::move(r); });
  scheduler.Add(std::move(third), [&](Result r) { waiting = std::move(r); });
  for (int i = 0; i < 5; ++i) scheduler.Step();
  EXPECT_EQ(scheduler.stats().waiting, 1u);
  cancel_waiting = true;
  scheduler.Step();
  EXPECT_EQ(scheduler.stats().waiting, 0u);
  cancel_running = true;
  while (scheduler.Step()) continue;
  EXPECT_EQ(waiting.finish_reason, FinishReason::kCancelled);
  EXPECT_TRUE(waiting.ids.empty());
  EXPECT_EQ(running.finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(running.ids.size(), 6u);
  EXPECT_EQ(kept.ids, expected.results[0].ids);
}

TEST(Scheduler, ScoringGivesEveryPositionOnceInAnyCircumstances) {
  TestModel test(Hf("gemma3"));
  const std::vector<TokenId> prompt = Tokens(75, 4);
  const size_t vocab = test.model->config().vocab_size;
  std::vector<std::vector<float>> all;
  for (const uint32_t chunk : {1u, 7u, 256u}) {
    Scheduler scheduler(test.model.get(), nullptr, Options(chunk));
    std::vector<float> logits;
    Request request;
    request.prompt = prompt;
    request.on_logits = [&](size_t first, std::span<const float> rows) {
      EXPECT_EQ(first * vocab, logits.size());
      logits.insert(logits.end(), rows.begin(), rows.end());
    };
    Result result;
    scheduler.Add(Greedy(prompt, 3), [](Result) {});
    scheduler.Add(request, [&](Result r) { result = std::move(r); });
    while (scheduler.Step()) continue;
    EXPECT_FALSE(result.error);
    EXPECT_TRUE(result.ids.empty());
    all.push_back(std::move(logits));
  }
  EXPECT_EQ(all[0].size(), prompt.size() * vocab);
  EXPECT_EQ(all[0], all[1]);
  EXPECT_EQ(all[0], all[2]);

  // Never more rows a step than there is room for, requests together; each gets on.
  for (const size_t most : {size_t{3}, size_t{0}}) {
    SchedulerOptions options = Options(256);
    options.scored_rows = most;
    Scheduler scheduler(test.model.get(), nullptr, options);
    size_t in_step = 0;
    std::array<std::vector<float>, 2> logits;
    for (std::vector<float>& of_one : logits) {
      Request request;
      request.prompt = prompt;
      request.on_logits = [&](size_t, std::span<const float> rows) {
        in_step += rows.size() / vocab;
        of_one.insert(of_one.end(), rows.begin(), rows.end());
      };
      scheduler.Add(request, [](Result) {});
    }
    while (scheduler.Step()) {
      EXPECT_LE(in_step, most + 2);
      in_step = 0;
    }
    EXPECT_EQ(logits[0], all[0]);
    EXPECT_EQ(logits[1], all[0]);
  }

  // The last row alone is the same row, also behind a beginning that is there already.
  Scheduler scheduler(test.model.get(), nullptr, Options(7));
  for (int run = 0; run < 2; ++run) {
    Request request;
    request.prompt = prompt;
    request.last_logits_only = true;
    std::vector<float> last;
    request.on_logits = [&](size_t first, std::span<const float> rows) {
      EXPECT_EQ(first, prompt.size() - 1);
      last.insert(last.end(), rows.begin(), rows.end());
    };
    scheduler.Add(request, [](Result) {});
    while (scheduler.Step()) continue;
    EXPECT_EQ(last, std::vector<float>(all[0].end() - static_cast<ptrdiff_t>(vocab), all[0].end()));
  }
}

TEST(Scheduler, RefusesBadRequestsBeforeComputing) {
  TestModel test(Hf("llama"));
  const Scheduler scheduler(test.model.get(), nullptr, Options());
  EXPECT_THROW(scheduler.Validate(Greedy({}, 1)), Error);
  EXPECT_THROW(scheduler.Validate(Greedy({-1}, 1)), Error);
  EXPECT_THROW(scheduler.Validate(Greedy({211}, 1)), Error);
  EXPECT_THROW(scheduler.Validate(Greedy(Tokens(512, 1), 1)), Error);
  EXPECT_NO_THROW(scheduler.Validate(Greedy(Tokens(511, 1), 1)));
  Request request = Greedy({1}, 1);
  request.stops = {""};
  EXPECT_THROW(scheduler.Validate(request), Error);
  request = Greedy({1}, 1);
  request.sampling.top_p = 2.0f;
  EXPECT_THROW(scheduler.Validate(request), Error);
}

TEST(Scheduler, EveryEndTokenEndsTheAnswer) {
  TestModel test(Hf("llama"));
  const Outcome free = RunAll(test, Options(), {Greedy(Tokens(20, 1), 12)}, false);
  const std::vector<TokenId>& ids = free.results[0].ids;
  for (const size_t end : {0u, 4u, 11u}) {
    Request request = Greedy(Tokens(20, 1), 12);
    request.eos_ids = {210, ids[end], 209};
    const Outcome ended = RunAll(test, Options(), {request}, false);
    const auto first = std::ranges::find_first_of(ids, request.eos_ids);
    EXPECT_EQ(ended.results[0].ids, std::vector<TokenId>(ids.begin(), first));
    EXPECT_EQ(ended.results[0].finish_reason, FinishReason::kStop);
  }
}

}  // namespace
}  // namespace moewe::engine
