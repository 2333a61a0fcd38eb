#include "engine/engine.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "platform/signals_elsewhere.h"

namespace moewe::engine {
namespace {

// What the engine's thread has for a caller.
struct Mailbox {
  std::mutex mutex;
  std::condition_variable changed;
  std::string text;              // not yet shown
  std::optional<Result> result;  // once it has ended
};

}  // namespace

struct Engine::Impl {
  struct Arrival {
    Request request;
    std::function<void(Result)> done;
  };

  Impl(model::Model* m, const text::Tokenizer* tokenizer, const SchedulerOptions& options)
      : model(m), scheduler(m, tokenizer, options) {
    const SignalsElsewhere signals;
    thread = std::thread([this] { Loop(); });
  }

  void Loop() {
    bool busy = false;
    while (true) {
      std::vector<Arrival> news;
      {
        std::unique_lock lock(mutex);
        stats = scheduler.stats();
        if (!busy) WaitForWork(&lock);
        if (stop) break;
        TellStream();
        news.swap(arrivals);
      }
      for (Arrival& a : news) scheduler.Add(std::move(a.request), std::move(a.done));
      busy = scheduler.Step();
    }
    for (Arrival& a : arrivals) scheduler.Add(std::move(a.request), std::move(a.done));
    scheduler.CancelAll();
  }

  void WaitForWork(std::unique_lock<std::mutex>* lock) {
    constexpr std::chrono::milliseconds kIdleTurn{5};
    const auto ready = [&] { return stop || !arrivals.empty() || stream_told != stream_asked; };
    while (!ready()) {
      lock->unlock();
      const bool again = Idle();
      lock->lock();
      if (!again) return wake.wait(*lock, ready);
      wake.wait_for(*lock, kIdleTurn, ready);
    }
  }

  // What is read ahead is not worth the thread: what goes wrong there shows in the step that needs
  // it.
  bool Idle() {
    try {
      return model->Idle();
    } catch (const std::exception& error) {
      LogWarning(std::string("reading experts ahead failed: ") + error.what());
      return false;
    }
  }

  // The mutex is held.
  void TellStream() {
    if (stream_told == stream_asked) return;
    stream = model->stream_stats();
    stream_told = stream_asked;
    told.notify_all();
  }

  model::Model* const model;
  Scheduler scheduler;  // the thread's, but for Validate
  mutable std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable told;
  std::optional<model::StreamStats> stream;  // as of the last time that somebody asked
  uint64_t stream_asked = 0;
  uint64_t stream_told = 0;
  std::vector<Arrival> arrivals;
  Scheduler::Stats stats;
  bool stop = false;
  std::thread thread;
};

Engine::Engine(model::Model* model, const text::Tokenizer* tokenizer,
               const SchedulerOptions& options)
    : impl_(std::make_unique<Impl>(model, tokenizer, options)) {}

Engine::~Engine() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  impl_->wake.notify_one();
  impl_->told.notify_all();
  impl_->thread.join();
}

Scheduler::Stats Engine::stats() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->stats;
}

std::optional<model::StreamStats> Engine::stream_stats() const {
  std::unique_lock lock(impl_->mutex);
  const uint64_t mine = ++impl_->stream_asked;
  impl_->wake.notify_one();
  impl_->told.wait(lock, [&] { return impl_->stop || impl_->stream_told >= mine; });
  return impl_->stream;
}

Result Engine::Generate(Request request) {
  impl_->scheduler.Validate(request);
  const auto on_text = std::move(request.on_text);
  // Shared: the engine's thread is still inside notify_one when we may be gone already.
  const auto box = std::make_shared<Mailbox>();
  if (on_text) {
    request.on_text = [box](std::string_view text) {
      std::lock_guard lock(box->mutex);
      box->text += text;
      box->changed.notify_one();
    };
  }
  // on_text that throws cancels through this, and so does the caller's own flag: both are looked
  // at.
  const auto failed = std::make_shared<std::atomic<bool>>(false);
  request.abandoned = failed;
  auto done = [box](Result result) {
    std::lock_guard lock(box->mutex);
    box->result = std::move(result);
    box->changed.notify_one();
  };
  {
    std::lock_guard lock(impl_->mutex);
    impl_->arrivals.push_back({std::move(request), std::move(done)});
  }
  impl_->wake.notify_one();

  std::exception_ptr problem;
  std::unique_lock lock(box->mutex);
  while (true) {
    box->changed.wait(lock, [&] { return !box->text.empty() || box->result; });
    const std::string text = std::exchange(box->text, "");
    if (!text.empty() && problem == nullptr) {
      lock.unlock();
      try {
        on_text(text);
      } catch (...) {
        problem = std::current_exception();
        failed->store(true);
      }
      lock.lock();
    }
    if (box->result && box->text.empty()) break;
  }
  if (problem != nullptr) std::rethrow_exception(problem);
  return std::move(*box->result);
}

}  // namespace moewe::engine
