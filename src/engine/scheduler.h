// Many requests over one model: each step is one batch of what all of them need next.
//
// A step takes one token of every request that is decoding and, oldest first, up to `chunk` prompt
// tokens of those that are not. A request whose prompt begins like a sequence that is running or
// that ended lately starts from that sequence's keys and values.
//
// When the KV cache is full, ended sequences are given up first, then the youngest request steps
// back into the queue and is computed again later; only a request that does not fit alone ends with
// Error{kOutOfBudget}.
//
// A step that decodes may check drafted tokens beside the next one (engine/drafter.h; a model's
// prediction head knows more than a short match): then it
// gives several tokens of a request at once. Not where experts are streamed (each token more reads
// more of them from the disk, which is what the step waits for), while a prompt is computed in the
// same step, or with more than a few requests, whose tokens fill a step without drafts.
//
// None of this changes a result: what a request gives depends on its prompt,
// its parameters and the model alone, bit for bit.
#ifndef MOEWE_ENGINE_SCHEDULER_H_
#define MOEWE_ENGINE_SCHEDULER_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/draft_length.h"
#include "engine/drafter.h"
#include "engine/prefix_cache.h"
#include "engine/request.h"
#include "model/kv_cache.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace moewe::engine {

struct SchedulerOptions {
  uint32_t context = 0;                       // positions of one prompt and answer together
  size_t kv_blocks = 0;                       // of all sequences together
  size_t states = model::kStatesPerSequence;  // the same of recurrent layers, if there are any
  model::KvType kv_type = model::KvType::kF16;
  uint32_t chunk = 256;       // prompt tokens a step
  uint32_t max_running = 64;  // requests in one batch
  bool reuse_prefixes = true;
  // Rows of logits, each a vocabulary wide, that a step gives for requests that want those of every
  // token. Every one of them gets at least one.
  size_t scored_rows = 32;
  // Drafted tokens that a step checks at most, of all its requests together; 0 = none.
  size_t draft_rows = 0;
  // As many of them as pay by measured times, and only for one request alone; false = always as
  // many as are allowed. The answers are the same.
  bool drafts_by_gain = true;
  std::unique_ptr<Drafter> (*make_drafter)() = nullptr;  // null = PromptLookup
};

// Not thread-safe: Validate may be called from any thread, everything else by one at a time.
class Scheduler {
 public:
  // `tokenizer` may be null: then answers have ids and no text. Both must outlive the scheduler.
  Scheduler(model::Model* model, const text::Tokenizer* tokenizer, const SchedulerOptions& options);
  ~Scheduler();

  // Throws Error{kUsage} for a prompt that is empty, has ids outside of the vocabulary or leaves no
  // room in the context, and for sampling parameters out of range; Error{kOutOfBudget} for a prompt
  // that the KV cache cannot hold.
  void Validate(const Request& request) const;

  // Queues a validated request. `done` is called once, from a later Step or from CancelAll.
  void Add(Request request, std::function<void(Result)> done);

  // Runs one batch; false if no request is left.
  bool Step();

  void CancelAll();

  struct Stats {
    size_t waiting = 0;
    size_t running = 0;
    size_t kept_sequences = 0;  // ended, for reuse
    size_t free_blocks = 0;
    uint64_t steps = 0;
    uint64_t computed_tokens = 0;  // rows of all steps
    uint64_t preemptions = 0;
    uint64_t drafted_tokens = 0;
    uint64_t accepted_tokens = 0;  // of these
  };
  Stats stats() const;

 private:
  using Clock = std::chrono::steady_clock;
  static double Seconds(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
  }

  struct Task;
  struct Planned {
    Task* task;
    model::SequenceChunk chunk;
    std::span<const TokenId> drafts;  // the end of chunk.tokens
  };

  void DropCancelled();
  void Admit();
  bool Fits(const Task& task) const;
  void Start(Task& task);
  void Plan();
  size_t DraftsOfStep() const;
  size_t AddDrafts(Task& task, size_t most);
  bool KeepsState(model::Sequence& sequence, size_t rows);
  size_t DraftByHead(model::Sequence& sequence, TokenId token, std::span<TokenId> out);
  bool MakeRoom(Task& task, size_t n);
  void StepBack(Task& task);
  void Run(std::span<const Planned> plan);
  void Deliver(const Planned& planned, std::span<float> rows);
  void Score(Task& task, std::span<const float> rows);
  void Decode(const Planned& planned, std::span<float> rows);
  std::optional<FinishReason> Sample(Task& task, std::span<float> logits);
  void NoteStep(const Planned& planned, size_t accepted, bool ended);
  void Finish(Task& task, FinishReason reason);
  void Fail(Task& task, Error error);

  model::Model* const model_;
  const text::Tokenizer* const tokenizer_;
  const SchedulerOptions options_;
  model::KvPool pool_;
  PrefixCache kept_;
  std::deque<std::unique_ptr<Task>> waiting_;
  std::vector<std::unique_ptr<Task>> running_;  // in the order of admission
  const bool can_draft_;
  bool head_failed_ = false;
  StepTimes step_times_;
  uint64_t steps_ = 0, computed_tokens_ = 0, preemptions_ = 0;
  uint64_t drafted_tokens_ = 0, accepted_tokens_ = 0;
  // Of the step that runs.
  std::vector<Planned> plan_;
  std::vector<model::SequenceChunk> chunks_;
  std::vector<float> logits_;
  Clock::time_point step_began_;  // with the making of drafts
};

}  // namespace moewe::engine

#endif  // MOEWE_ENGINE_SCHEDULER_H_
