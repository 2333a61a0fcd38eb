#include "platform/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "moewe/error.h"
#include "platform/cpu_features.h"
#include "platform/signals_elsewhere.h"

namespace moewe {
namespace {

using Clock = std::chrono::steady_clock;

// Longer than the serial parts between two regions of a decode step, far shorter than a time slice.
constexpr auto kSpinTime = std::chrono::microseconds(100);
// Reading the clock costs about as much as a pause; look at it now and then.
constexpr int kPausesPerClockRead = 32;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The pool and worker number whose task this thread is inside of, for nested calls.
thread_local const void* current_pool = nullptr;
thread_local int current_worker = 0;

}  // namespace

// The life of a region is one atomic word: [region number | open bit | workers inside]. A worker
// joins by a compare-and-swap that succeeds only while the region is open, so one that wakes late
// misses it instead of holding everybody up. The caller closes the region when no task is left to
// hand out and waits until the workers inside have left; only then may the region's fields change.
struct ThreadPool::Impl {
  static constexpr uint64_t kInsideMask = 0xFFFF;
  static constexpr uint64_t kOpen = 1u << 16;
  static constexpr uint64_t kRegion = 1u << 17;

  alignas(64) std::atomic<uint64_t> state{0};
  alignas(64) std::atomic<size_t> next{0};
  alignas(64) size_t num_tasks = 0;
  const FunctionRef<void(size_t, int)>* task = nullptr;
  std::atomic<int> parked{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::condition_variable wake;
  std::vector<std::thread> workers;
  int num_threads = 1;

  void TakeTasks(int worker) {
    const void* outer_pool = std::exchange(current_pool, this);
    const int outer_worker = std::exchange(current_worker, worker);
    for (size_t i = next.fetch_add(1, std::memory_order_relaxed); i < num_tasks;
         i = next.fetch_add(1, std::memory_order_relaxed)) {
      (*task)(i, worker);
    }
    current_pool = outer_pool;
    current_worker = outer_worker;
  }

  static uint64_t RegionOf(uint64_t word) { return word / kRegion; }

  // Waits until a region after `seen` is there or the pool stops. Spins, then parks.
  void AwaitRegion(uint64_t seen) {
    auto deadline = Clock::now() + kSpinTime;
    while (true) {
      for (int i = 0; i < kPausesPerClockRead; ++i) {
        if (RegionOf(state.load(std::memory_order_relaxed)) != seen || stop.load()) return;
        Pause();
      }
      if (Clock::now() >= deadline) break;
    }
    std::unique_lock lock(mutex);
    // Sequentially consistent with Run's "publish, then look whether anyone is parked": one of the
    // two sees the other.
    parked.fetch_add(1);
    wake.wait(lock, [&] { return RegionOf(state.load()) != seen || stop.load(); });
    parked.fetch_sub(1);
  }

  void WorkerLoop(int worker) {
    uint64_t seen = 0;
    while (true) {
      AwaitRegion(seen);
      if (stop.load()) return;
      uint64_t word = state.load();
      seen = RegionOf(word);
      bool joined = false;
      while ((word & kOpen) != 0 && RegionOf(word) == seen) {
        if (state.compare_exchange_weak(word, word + 1, std::memory_order_acq_rel)) {
          joined = true;
          break;
        }
      }
      if (!joined) continue;
      TakeTasks(worker);
      state.fetch_sub(1, std::memory_order_release);
    }
  }

  void RunParallel(size_t count, const FunctionRef<void(size_t, int)>& function) {
    num_tasks = count;
    task = &function;
    next.store(0, std::memory_order_relaxed);
    const uint64_t region = RegionOf(state.load(std::memory_order_relaxed)) + 1;
    state.store(region * kRegion | kOpen);
    if (parked.load() > 0) {
      std::lock_guard lock(mutex);
      wake.notify_all();
    }
    TakeTasks(0);
    state.fetch_and(~kOpen, std::memory_order_acq_rel);
    for (int spins = 0; (state.load(std::memory_order_acquire) & kInsideMask) != 0; ++spins) {
      // A worker that lost its CPU in the middle of a task needs ours more than we do.
      if (spins < 2000) {
        Pause();
      } else {
        sched_yield();
      }
    }
  }

  void StopWorkers() {
    {
      std::lock_guard lock(mutex);
      stop.store(true);
    }
    wake.notify_all();
    for (std::thread& worker : workers) worker.join();
  }
};

ThreadPool::ThreadPool(int num_threads) : impl_(std::make_unique<Impl>()) {
  if (num_threads <= 0) num_threads = UsableCpus();
  num_threads = std::min(num_threads, 1024);
  impl_->num_threads = num_threads;
  // Pinned nowhere: the caller, who waits for the disk between regions, wakes where its reads end,
  // and a worker bound to that CPU would take turns with it while another one idles.
  const SignalsElsewhere signals;
  for (int worker = 1; worker < num_threads; ++worker) {
    try {
      impl_->workers.emplace_back([impl = impl_.get(), worker] { impl->WorkerLoop(worker); });
    } catch (const std::exception& error) {
      impl_->StopWorkers();
      throw Error(ErrorCode::kOutOfBudget,
                  "cannot start " + std::to_string(num_threads) + " threads: " + error.what());
    }
  }
}

ThreadPool::~ThreadPool() { impl_->StopWorkers(); }

int ThreadPool::num_threads() const { return impl_->num_threads; }

void ThreadPool::Run(size_t num_tasks, FunctionRef<void(size_t task, int worker)> task) {
  if (current_pool == impl_.get()) {  // nested: a mistake, but one that can be served without harm
    const int worker = current_worker;
    for (size_t i = 0; i < num_tasks; ++i) task(i, worker);
    return;
  }
  if (impl_->num_threads == 1 || num_tasks <= 1) {
    for (size_t i = 0; i < num_tasks; ++i) task(i, 0);
    return;
  }
  impl_->RunParallel(num_tasks, task);
}

}  // namespace moewe
