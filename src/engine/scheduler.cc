#include "engine/scheduler.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "engine/scheduler_task.h"
#include "moewe/error.h"

namespace moewe::engine {
namespace {

using Wanted = model::SequenceChunk::Logits;

constexpr size_t kMaxKeptSequences = 256;

}  // namespace

Error CurrentError() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kOutOfBudget, "out of memory");
  } catch (const std::exception& error) {
    return Error(ErrorCode::kInternal, error.what());
  }
}

Scheduler::Scheduler(model::Model* model, const text::Tokenizer* tokenizer,
                     const SchedulerOptions& options)
    : model_(model),
      tokenizer_(tokenizer),
      options_(options),
      pool_(model->config(), options.kv_type, options.kv_blocks, options.states),
      kept_(kMaxKeptSequences),
      can_draft_(options.draft_rows > 0 && !model->stream_stats()) {
  // At once: growing later would take the old rows and the new ones.
  if (can_draft_) logits_.reserve((1 + options.draft_rows) * model->config().vocab_size);
}

Scheduler::~Scheduler() { CancelAll(); }

void Scheduler::Validate(const Request& request) const {
  const size_t length = request.prompt.size();
  const size_t vocab_size = model_->config().vocab_size;
  if (length == 0) throw Error(ErrorCode::kUsage, "the prompt has no tokens");
  for (const TokenId id : request.prompt) {
    if (id < 0 || static_cast<size_t>(id) >= vocab_size) {
      throw Error(ErrorCode::kUsage, "token id " + std::to_string(id) +
                                         " is outside of the vocabulary of " +
                                         std::to_string(vocab_size));
    }
  }
  const bool scored = request.on_logits != nullptr;
  if (length > options_.context || (length == options_.context && !scored)) {
    throw Error(ErrorCode::kUsage, "context length exceeded: the prompt has " +
                                       std::to_string(length) + " tokens and the context is " +
                                       std::to_string(options_.context));
  }
  if (model::BlocksFor(length) > options_.kv_blocks) {
    throw Error(ErrorCode::kOutOfBudget,
                "the KV cache is too small: the prompt has " + std::to_string(length) +
                    " tokens and there is room for " +
                    std::to_string(options_.kv_blocks * model::kBlockTokens));
  }
  if (!scored) request.sampling.Validate(vocab_size);
  StopMatcher check(request.stops);
}

void Scheduler::Add(Request request, std::function<void(Result)> done) {
  waiting_.push_back(std::make_unique<Task>(std::move(request), tokenizer_, std::move(done)));
}

bool Scheduler::Step() {
  DropCancelled();
  Admit();
  step_began_ = Clock::now();
  Plan();
  if (!plan_.empty()) {
    ++steps_;
    for (const Planned& planned : plan_) computed_tokens_ += planned.chunk.tokens.size();
    Run(plan_);
  }
  return !running_.empty() || !waiting_.empty();
}

void Scheduler::CancelAll() {
  while (!running_.empty()) Finish(*running_.back(), FinishReason::kCancelled);
  while (!waiting_.empty()) Finish(*waiting_.back(), FinishReason::kCancelled);
}

Scheduler::Stats Scheduler::stats() const {
  return {.waiting = waiting_.size(),
          .running = running_.size(),
          .kept_sequences = kept_.size(),
          .free_blocks = pool_.free_blocks(),
          .steps = steps_,
          .computed_tokens = computed_tokens_,
          .preemptions = preemptions_,
          .drafted_tokens = drafted_tokens_,
          .accepted_tokens = accepted_tokens_};
}

void Scheduler::DropCancelled() {
  std::vector<Task*> cancelled;
  for (const auto& task : waiting_) {
    if (task->cancelled()) cancelled.push_back(task.get());
  }
  for (const auto& task : running_) {
    if (task->cancelled()) cancelled.push_back(task.get());
  }
  for (Task* task : cancelled) Finish(*task, FinishReason::kCancelled);
}

void Scheduler::Admit() {
  while (!waiting_.empty() && running_.size() < options_.max_running && Fits(*waiting_.front())) {
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    try {
      Start(*running_.back());
    } catch (...) {
      Fail(*running_.back(), CurrentError());
    }
  }
}

// Together with the running ones. Alone, it is tried in any case.
bool Scheduler::Fits(const Task& task) const {
  size_t blocks = task.blocks();
  for (const auto& other : running_) blocks += other->blocks();
  const bool states =
      !pool_.recurrent() || (running_.size() + 1) * model::kStatesToRun <= pool_.max_states();
  return running_.empty() || (blocks <= options_.kv_blocks && states);
}

void Scheduler::Start(Task& task) {
  // At least one token is left to compute: its logits are wanted. Some requests want them all.
  const auto beginning = std::span<const TokenId>(task.tokens)
                             .first(task.wants_every_row() ? 0 : task.tokens.size() - 1);
  const Task* donor = nullptr;
  size_t length = 0;
  if (options_.reuse_prefixes) {
    length = kept_.Find(beginning);
    for (const auto& other : running_) {
      if (other.get() == &task) continue;
      const size_t common = other->sequence->ReusableLength(CommonPrefix(
          std::span<const TokenId>(other->tokens).first(other->sequence->length()), beginning));
      if (common > length) {
        length = common;
        donor = other.get();
      }
    }
  }
  if (donor != nullptr) {
    // Without a block for the copy of a partial one, whole blocks are shared.
    if (length % model::kBlockTokens != 0 && pool_.free_blocks() == 0) kept_.EvictOldest();
    while (length % model::kBlockTokens != 0 && pool_.free_blocks() == 0) {
      length = donor->sequence->ReusableLength(length - length % model::kBlockTokens);
    }
    task.sequence = donor->sequence->Fork(length);
  } else if (length > 0) {
    task.sequence = kept_.Take(beginning);
  } else {
    task.sequence.emplace(&pool_);
  }
  if (!task.started) {
    task.started = Clock::now();
    task.result.reused_tokens = length;
    task.result.queue_seconds = Seconds(task.queued, *task.started);
  }
}

void Scheduler::Plan() {
  plan_.clear();
  size_t again = 0;
  for (const auto& task : running_) again += task->again;
  size_t prompt_tokens =
      std::max<size_t>(1, options_.chunk - std::min<size_t>(options_.chunk, again));
  size_t scored_rows = options_.scored_rows;
  size_t draft_rows = DraftsOfStep();
  // Making room may end the task itself, or send those behind it back to the queue.
  for (size_t i = 0; i < running_.size();) {
    Task& task = *running_[i];
    std::span<const TokenId> tokens = task.pending();
    if (tokens.size() > 1 && !task.decodes()) {
      tokens = tokens.first(std::min(tokens.size(), prompt_tokens));
      if (task.wants_every_row()) {
        tokens = tokens.first(std::min(tokens.size(), std::max<size_t>(1, scored_rows)));
        scored_rows -= std::min(scored_rows, tokens.size());
      }
      prompt_tokens -= tokens.size();
    }
    if (!tokens.empty()) {
      try {
        if (!MakeRoom(task, tokens.size())) continue;
        task.sequence->Reserve(tokens.size());
      } catch (...) {
        Fail(task, CurrentError());
        continue;
      }
      Planned planned{&task, {&*task.sequence, tokens, Wanted::kNone}, {}};
      model::SequenceChunk& chunk = planned.chunk;
      if (task.wants_every_row()) {
        chunk.logits = Wanted::kAll;
      } else if (tokens.size() == task.pending().size()) {
        chunk.logits = Wanted::kLast;
      }
      if (const size_t drafts = draft_rows > 0 ? AddDrafts(task, draft_rows) : 0; drafts > 0) {
        draft_rows -= drafts;
        chunk.tokens = task.drafted;
        chunk.logits = Wanted::kAll;
        planned.drafts = chunk.tokens.last(drafts);
      }
      plan_.push_back(planned);
    }
    ++i;
  }
}

// False if `task` had to make room itself.
bool Scheduler::MakeRoom(Task& task, size_t n) {
  while (!task.sequence->HasRoom(n)) {
    if (kept_.EvictOldest()) continue;
    Task& youngest = *running_.back();
    const bool itself = &youngest == &task;
    if (running_.size() == 1) {
      Fail(task, Error(ErrorCode::kOutOfBudget,
                       "the KV cache is full: all " +
                           std::to_string(options_.kv_blocks * model::kBlockTokens) +
                           " positions are in use"));
    } else {
      StepBack(youngest);
    }
    if (itself) return false;
  }
  return true;
}

// To be computed again when there is room. It comes before everything that waits.
void Scheduler::StepBack(Task& task) {
  ++preemptions_;
  task.sequence.reset();
  task.again = 0;
  waiting_.push_front(std::move(running_.back()));
  running_.pop_back();
}

void Scheduler::Run(std::span<const Planned> plan) {
  chunks_.clear();
  for (const Planned& planned : plan) chunks_.push_back(planned.chunk);
  logits_.clear();
  try {
    model_->Forward(chunks_, &logits_);
  } catch (...) {
    if (plan.size() == 1 && !plan.front().drafts.empty()) {
      // The fault may be one that only a draft meets.
      Planned plain = plan.front();
      plain.chunk.tokens =
          plain.chunk.tokens.first(plain.chunk.tokens.size() - plain.drafts.size());
      plain.chunk.logits = Wanted::kLast;
      plain.drafts = {};
      return Run({&plain, 1});
    }
    if (plan.size() == 1) {
      Fail(*plan.front().task, CurrentError());
      return;
    }
    // No sequence has changed. Alone, only those fail whose fault it is.
    for (size_t i = 0; i < plan.size(); ++i) Run(plan.subspan(i, 1));
    return;
  }
  try {
    model_->checkpoint().CheckReadable();
  } catch (...) {
    const Error error = CurrentError();
    for (const Planned& planned : plan) Fail(*planned.task, error);
    return;
  }
  std::span<float> rest(logits_);
  for (const Planned& planned : plan) {
    size_t rows = planned.chunk.logits == Wanted::kNone ? 0 : 1;
    if (planned.chunk.logits == Wanted::kAll) rows = planned.chunk.tokens.size();
    const size_t values = rows * model_->config().vocab_size;
    if (rows > 0) Deliver(planned, rest.first(values));
    rest = rest.subspan(values);
  }
}

void Scheduler::Deliver(const Planned& planned, std::span<float> rows) {
  Task& task = *planned.task;
  try {
    if (task.scored()) {
      Score(task, rows);
    } else {
      Decode(planned, rows);
    }
  } catch (...) {
    Fail(task, CurrentError());
  }
}

void Scheduler::Score(Task& task, std::span<const float> rows) {
  const size_t end = task.sequence->length();
  task.request.on_logits(end - rows.size() / model_->config().vocab_size, rows);
  if (end == task.tokens.size()) Finish(task, FinishReason::kLength);
}

void Scheduler::Finish(Task& task, FinishReason reason) {
  // What may throw comes first, while the task is still where others find it.
  try {
    const std::string text = task.answer.Finish();
    task.result.text = task.answer.text();
    if (!text.empty() && task.request.on_text) task.request.on_text(text);
  } catch (...) {
    if (!task.result.error) task.result.error = CurrentError();
    reason = FinishReason::kError;
  }
  std::unique_ptr<Task> own;
  const auto take_from = [&](auto& list) {
    const auto at = std::ranges::find(list, &task, &std::unique_ptr<Task>::get);
    if (at == list.end()) return;
    own = std::move(*at);
    list.erase(at);
  };
  take_from(running_);
  if (own == nullptr) take_from(waiting_);

  Result& result = task.result;
  result.finish_reason = reason;
  const auto now = Clock::now();
  if (task.started) {
    const auto first = task.first_token.value_or(now);
    result.prefill_seconds = Seconds(*task.started, first);
    result.decode_seconds = Seconds(first, now);
  }
  if (task.sequence && reason != FinishReason::kError && options_.reuse_prefixes) {
    task.tokens.resize(task.sequence->length());
    task.sequence->DropHidden();
    kept_.Insert(std::move(task.tokens), std::move(*task.sequence));
  }
  task.sequence.reset();
  task.done(std::move(result));
}

void Scheduler::Fail(Task& task, Error error) {
  task.result.error = std::move(error);
  Finish(task, FinishReason::kError);
}

}  // namespace moewe::engine
