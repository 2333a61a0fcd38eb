#include "platform/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <numeric>
#include <thread>
#include <vector>

#include "platform/cpu_features.h"

namespace moewe {
namespace {

TEST(ThreadPool, EveryTaskRunsExactlyOnceOnAKnownWorker) {
  for (int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.num_threads(), threads);
    for (size_t count : {0u, 1u, 2u, 7u, 1000u}) {
      std::vector<int> hits(count, 0);  // not atomic: a task belongs to one worker
      std::atomic<bool> worker_ok = true;
      pool.Run(count, [&](size_t i, int worker) {
        ++hits[i];
        if (worker < 0 || worker >= threads) worker_ok = false;
      });
      EXPECT_TRUE(worker_ok);
      for (size_t i = 0; i < count; ++i) EXPECT_EQ(hits[i], 1) << i;
    }
  }
}

TEST(ThreadPool, ManyShortRegionsSeeEachOthersWrites) {
  ThreadPool pool(3);
  std::vector<uint64_t> values(64, 0);
  for (int region = 0; region < 5000; ++region) {
    pool.Run(values.size(), [&](size_t i, int) { ++values[i]; });
    pool.Run(values.size() / 2, [&](size_t i, int) { values[i] += values[i + values.size() / 2]; });
    for (size_t i = 0; i < values.size(); ++i) values[i] %= 1000003;
  }
  std::vector<uint64_t> expected(64, 0);
  for (int region = 0; region < 5000; ++region) {
    for (uint64_t& v : expected) ++v;
    for (size_t i = 0; i < 32; ++i) expected[i] += expected[i + 32];
    for (uint64_t& v : expected) v %= 1000003;
  }
  EXPECT_EQ(values, expected);
}

TEST(ThreadPool, ParkedWorkersWakeAgain) {
  ThreadPool pool(2);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // longer than the spin
    std::atomic<int> inside = 0;
    std::atomic<bool> met = false;
    // Both tasks wait for each other: passes only if a second worker takes part.
    pool.Run(2, [&](size_t, int) {
      ++inside;
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (inside < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
      if (inside == 2) met = true;
    });
    EXPECT_TRUE(met);
  }
}

TEST(ThreadPool, UnevenTasksBalance) {
  ThreadPool pool(2);
  std::vector<int> done(20, 0);
  pool.Run(20, [&](size_t i, int) {
    if (i == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    done[i] = 1;
  });
  EXPECT_EQ(std::accumulate(done.begin(), done.end(), 0), 20);
}

TEST(ThreadPool, NestedRegionRunsInline) {
  ThreadPool pool(2);
  std::vector<int> sums(8, 0);
  pool.Run(8, [&](size_t i, int outer) {
    pool.Run(5, [&](size_t j, int inner) {
      EXPECT_EQ(inner, outer);
      sums[i] += static_cast<int>(j);
    });
  });
  for (int sum : sums) EXPECT_EQ(sum, 10);
}

TEST(ThreadPool, TwoPoolsSideBySide) {
  ThreadPool a(2);
  ThreadPool b(2);
  std::atomic<int> total = 0;
  a.Run(4, [&](size_t, int) { b.Run(1, [&](size_t, int) { ++total; }); });
  EXPECT_EQ(total, 4);
}

TEST(ThreadPool, DefaultUsesTheUsableCpus) {
  ThreadPool pool;
  EXPECT_EQ(pool.num_threads(), UsableCpus());
}

// Who waits for Ctrl-C must be the one who gets it. Faults stay with the thread that makes them.
TEST(ThreadPool, WorkersLeaveSignalsToTheProgram) {
  sigset_t before;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  ThreadPool pool(4);
  std::atomic<int> workers{0};
  for (int round = 0; round < 200; ++round) {
    pool.Run(64, [&](size_t, int worker) {
      if (worker == 0) return;
      sigset_t mask;
      pthread_sigmask(SIG_SETMASK, nullptr, &mask);
      EXPECT_EQ(sigismember(&mask, SIGINT), 1);
      EXPECT_EQ(sigismember(&mask, SIGTERM), 1);
      EXPECT_EQ(sigismember(&mask, SIGBUS), 0);
      ++workers;
    });
    if (workers > 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_GT(workers, 0);
  sigset_t after;
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  EXPECT_EQ(sigismember(&after, SIGINT), sigismember(&before, SIGINT));
}

}  // namespace
}  // namespace moewe
