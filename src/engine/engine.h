// A scheduler with a thread of its own, for callers on any thread.
#ifndef MOEWE_ENGINE_ENGINE_H_
#define MOEWE_ENGINE_ENGINE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "engine/scheduler.h"

namespace moewe::engine {

class Engine {
 public:
  // As Scheduler's. Nobody else may use `model` while the engine lives.
  Engine(model::Model* model, const text::Tokenizer* tokenizer, const SchedulerOptions& options);
  // Cancels what still runs; Generate calls return. None may begin any more.
  ~Engine();

  // Any thread; callers share steps. Blocks until the request ends, and calls its on_text on this
  // thread meanwhile: one that is slow holds nobody else up, one that throws ends the request and
  // its exception comes out here. on_logits is called on the engine's thread. Throws what
  // Scheduler::Validate throws; errors of the request itself are in the result.
  Result Generate(Request request);

  Scheduler::Stats stats() const;

  // The model's, between two steps: waits for one that runs. Any thread.
  std::optional<model::StreamStats> stream_stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moewe::engine

#endif  // MOEWE_ENGINE_ENGINE_H_
