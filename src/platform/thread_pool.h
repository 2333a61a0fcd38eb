// A pool for inference: short parallel regions, thousands a second.
//
// Workers spin briefly after a region, then park, so that a region costs well under a microsecond
// while a model computes and nothing while it is idle. The caller takes part as worker 0. Regions
// do not nest.
#ifndef MOEWE_PLATFORM_THREAD_POOL_H_
#define MOEWE_PLATFORM_THREAD_POOL_H_

#include <cstddef>
#include <memory>

#include "base/function_ref.h"

namespace moewe {

class ThreadPool {
 public:
  // `num_threads` includes the caller; 0 means all CPUs this process may use (affinity mask and
  // cgroup quota). No thread is pinned to a CPU.
  explicit ThreadPool(int num_threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;

  // Calls task(i, worker) for every i in [0, num_tasks), each exactly once, in any order and on any
  // worker in [0, num_threads()); returns when all are done. Tasks are handed out from a shared
  // counter, so uneven tasks balance. `task` must not throw and must not call Run. One caller at a
  // time.
  void Run(size_t num_tasks, FunctionRef<void(size_t task, int worker)> task);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moewe

#endif  // MOEWE_PLATFORM_THREAD_POOL_H_
