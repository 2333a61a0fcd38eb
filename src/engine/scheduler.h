// Many requests over one model: each step is one batch of what all of them need next.
//
// A step takes one token of every request that is decoding and, oldest first, up to `chunk` prompt
// tokens of those that are not. A request whose prompt begins like a sequence that is running or
// that ended lately starts from that sequence's keys and values.
//
// When the KV cache is full, ended sequences are given up first, then the youngest request steps
// back into the queue and is computed again later; only a request that does not fit alone ends with
// Error{kOutOfBudget}. None of this changes a result: what a request gives depends on its prompt,
// its parameters and the model alone, bit for bit.
#ifndef MOEWE_ENGINE_SCHEDULER_H_
#define MOEWE_ENGINE_SCHEDULER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

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
  };
  Stats stats() const;

 private:
  struct Task;
  struct Planned {
    Task* task;
    model::SequenceChunk chunk;
  };

  void DropCancelled();
  void Admit();
  bool Fits(const Task& task) const;
  void Start(Task& task);
  void Plan();
  bool MakeRoom(Task& task, size_t n);
  void StepBack(Task& task);
  void Run(std::span<const Planned> plan);
  void Deliver(Task& task, std::span<float> rows);
  void Score(Task& task, std::span<const float> rows);
  void Sample(Task& task, std::span<float> logits);
  void Finish(Task& task, FinishReason reason);
  void Fail(Task& task, Error error);

  model::Model* const model_;
  const text::Tokenizer* const tokenizer_;
  const SchedulerOptions options_;
  model::KvPool pool_;
  PrefixCache kept_;
  std::deque<std::unique_ptr<Task>> waiting_;
  std::vector<std::unique_ptr<Task>> running_;  // in the order of admission
  uint64_t steps_ = 0, computed_tokens_ = 0, preemptions_ = 0;
  // Of the step that runs.
  std::vector<Planned> plan_;
  std::vector<model::SequenceChunk> chunks_;
  std::vector<float> logits_;
};

}  // namespace moewe::engine

#endif  // MOEWE_ENGINE_SCHEDULER_H_
