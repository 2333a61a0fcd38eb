// A request while the scheduler has it. For the scheduler's own files.
#ifndef MOEWE_ENGINE_SCHEDULER_TASK_H_
#define MOEWE_ENGINE_SCHEDULER_TASK_H_

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/answer.h"
#include "engine/draft_length.h"
#include "engine/drafter.h"
#include "engine/scheduler.h"
#include "moewe/error.h"

namespace moewe::engine {

// The exception in flight as what its request ends with.
Error CurrentError();

struct Scheduler::Task {
  Task(Request r, const text::Tokenizer* tokenizer, std::function<void(Result)> d)
      : request(std::move(r)),
        done(std::move(d)),
        tokens(request.prompt),
        sampler(request.sampling),
        answer(tokenizer, request.stops) {
    result.prompt_tokens = request.prompt.size();
    for (const TokenId id : request.prompt) sampler.Observe(id);
  }

  bool scored() const { return request.on_logits != nullptr; }
  bool wants_every_row() const { return scored() && !request.last_logits_only; }
  bool cancelled() const {
    return (request.cancel != nullptr && request.cancel->load()) ||
           (request.abandoned != nullptr && request.abandoned->load());
  }
  // Tokens whose keys and values are still to be computed.
  std::span<const TokenId> pending() const { return std::span(tokens).subspan(sequence->length()); }
  // Blocks that it holds or is sure to need.
  size_t blocks() const {
    const size_t needed = model::BlocksFor(tokens.size());
    return sequence ? std::max(needed, sequence->blocks().size()) : needed;
  }

  // All that it needs computed is the answer's last token and those before it whose step was taken
  // back.
  bool decodes() const { return !result.ids.empty() && pending().size() == 1 + again; }

  const Request request;
  const std::function<void(Result)> done;
  std::vector<TokenId> tokens;  // the prompt, then the answer
  Sampler sampler;
  Answer answer;
  std::optional<model::Sequence> sequence;  // while it runs
  Result result;
  Clock::time_point queued = Clock::now();
  std::optional<Clock::time_point> started, first_token;
  // Tokens of the answer to be computed again: recurrent layers do not go back into a step.
  size_t again = 0;
  // With drafts: whose they are, how many pay, and the pending tokens with what was drafted after
  // them.
  std::unique_ptr<Drafter> drafter;
  DraftLength draft_length;
  size_t draft_match = 0;
  std::vector<TokenId> drafted;
};

}  // namespace moewe::engine

#endif  // MOEWE_ENGINE_SCHEDULER_TASK_H_
