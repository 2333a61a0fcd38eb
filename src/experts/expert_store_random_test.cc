// Everything that a store of experts does, in any order, with failing disks and with slow ones: the
// bytes that it hands out are always the file's, and each expert comes once.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <set>

#include "experts/expert_store.h"
#include "experts/store_test_disk.h"
#include "fake_disk.h"
#include "moewe/error.h"

namespace moewe::experts {
namespace {

using Random = std::mt19937;

uint32_t Below(Random& random, uint32_t limit) { return static_cast<uint32_t>(random() % limit); }

bool Chance(Random& random, double share) {
  return std::uniform_real_distribution<>(0.0, 1.0)(random) < share;
}

std::vector<uint32_t> SomeOf(Random& random, uint32_t experts, uint32_t count) {
  std::vector<uint32_t> some(experts);
  std::iota(some.begin(), some.end(), 0u);
  std::shuffle(some.begin(), some.end(), random);
  some.resize(std::min(count, experts));
  return some;
}

// A store, and what a user does with it.
class Workload {
 public:
  Workload(uint32_t seed, bool failures) : random_(seed), failures_(failures) {
    std::vector<uint32_t> experts(1 + Below(random_, 5));
    for (uint32_t& count : experts) count = Below(random_, Chance(random_, 0.25) ? 2 : 50);
    experts.push_back(1 + Below(random_, 30));
    const auto layout = Chance(random_, 0.5) ? ExpertLayout::kRecords : ExpertLayout::kRoles;
    stored_ = MakeLayers(experts, layout, 700 + Below(random_, 5000), 1 + Below(random_, 3), seed);
    const auto all = std::accumulate(experts.begin(), experts.end(), 0u);
    options_.arena_bytes = (1 + Below(random_, all + 1)) * ExpertStore::SlotBytes(stored_.layers);
    options_.floor = Chance(random_, 0.3) ? Below(random_, 8) : 0;
    options_.check = [this](uint32_t layer, const LoadedExpert& loaded) {
      ExpectBytes(layer, loaded);
      if (Chance(random_, check_fails_)) throw Error(ErrorCode::kHashMismatch, "as told");
    };
  }

  void UseScript() {
    disk_.files = stored_.files;
    disk_.random.seed(random_());
    disk_.depth = 1 + Below(random_, 20);
    disk_.only_when_waited = Chance(random_, 0.25);
    disk_.fault = [this](const DiskRead&) { return Chance(random_, read_fails_) ? EIO : 0; };
    Make([this](std::span<uint8_t>) { return std::make_unique<ScriptedDisk>(&disk_); });
  }
  void UseThreads(std::chrono::microseconds delay) {
    const auto disk = std::make_shared<FakeDisk>();
    for (const std::vector<uint8_t>& file : stored_.files) disk->AddFile(file);
    const FakeDiskOptions options{.seed = random_(), .depth = 3, .least = delay, .most = 3 * delay};
    Make([&](std::span<uint8_t>) { return disk->MakeReader(options); });
  }

  void Act() {
    if (failures_) {
      read_fails_ = Chance(random_, 0.5) ? 0.0 : 0.2;
      check_fails_ = Chance(random_, 0.5) ? 0.0 : 0.2;
    }
    switch (Below(random_, 8)) {
      case 0:
        return Guess();
      case 1:
        return Prewarm();
      default:
        return Step();
    }
  }

  void ExpectStats() const {
    const StoreStats stats = store_->stats();
    EXPECT_EQ(stats.resident + stats.prefetched + stats.missed, accesses_);
    EXPECT_EQ(std::accumulate(store_->counts().begin(), store_->counts().end(), uint64_t{0}),
              accesses_);
    EXPECT_LE(stats.bytes_demanded, stats.bytes_read);
    EXPECT_LE(stats.prefetch_unused, stats.prefetch_reads);
    if (!failures_) {
      EXPECT_EQ(stats.retries, 0u);
    }
    if (failed_ > 0) {
      EXPECT_GT(stats.retries, 0u);
    }
  }
  int failed() const { return failed_; }

 private:
  void Make(const ExpertStore::MakeReader& make) {
    store_ = std::make_unique<ExpertStore>(stored_.layers, options_, make);
  }

  void ExpectBytes(uint32_t layer, const LoadedExpert& loaded) const {
    for (size_t part = 0; part < 3; ++part) {
      const Bytes stored = stored_.Part(layer, loaded.expert, part);
      ASSERT_EQ(loaded.parts[part].size(), stored.size());
      ASSERT_EQ(std::memcmp(loaded.parts[part].data(), stored.data(), stored.size()), 0)
          << "layer " << layer << ", expert " << loaded.expert;
    }
  }

  uint32_t ALayer() { return Below(random_, static_cast<uint32_t>(stored_.layers.size())); }

  void Guess() {
    const uint32_t layer = ALayer();
    store_->Prefetch(layer, SomeOf(random_, store_->ids().experts(layer), 6));
  }

  void Prewarm() {
    std::vector<uint64_t> counts(store_->ids().size());
    for (uint64_t& count : counts) count = Below(random_, 5);
    store_->Prewarm(counts);
  }

  void Step() {
    const uint32_t layer = ALayer();
    const uint32_t most = store_->ids().experts(layer);
    std::vector<uint32_t> experts =
        SomeOf(random_, most, Chance(random_, 0.3) ? most : Below(random_, 9));
    std::sort(experts.begin(), experts.end());
    accesses_ += experts.size();
    const size_t submitted = disk_.submitted.size();
    store_->Begin(layer, experts);
    const bool leave = Chance(random_, 0.1);
    try {
      std::vector<uint32_t> seen;
      for (auto group = store_->Next(); !group.empty(); group = store_->Next()) {
        if (Chance(random_, 0.3)) Guess();  // disturbs nothing that was handed out
        std::set<uint32_t> slots;
        for (const LoadedExpert& loaded : group) {
          seen.push_back(loaded.expert);
          EXPECT_TRUE(slots.insert(loaded.slot).second);
          EXPECT_LT(loaded.slot, store_->slots());
          ExpectBytes(layer, loaded);
        }
        if (leave) return;
      }
      std::sort(seen.begin(), seen.end());
      EXPECT_EQ(seen, experts);
    } catch (const Error& error) {
      EXPECT_TRUE(failures_) << error.what();
      ++failed_;
    }
    if (!failures_) ExpectReadOnce(submitted);
  }

  void ExpectReadOnce(size_t since) const {
    std::set<std::pair<uint32_t, uint64_t>> reads;
    for (size_t i = since; i < disk_.submitted.size(); ++i) {
      const auto& [read, urgency] = disk_.submitted[i];
      if (urgency != DiskUrgency::kDemand) continue;
      EXPECT_TRUE(reads.emplace(read.tag, read.offset).second) << "read twice in a step";
    }
  }

  Random random_;
  const bool failures_;
  double read_fails_ = 0.0;
  double check_fails_ = 0.0;
  StoredLayers stored_;
  StoreOptions options_;
  DiskScript disk_;
  std::unique_ptr<ExpertStore> store_;
  uint64_t accesses_ = 0;
  int failed_ = 0;
};

TEST(ExpertStoreRandomTest, WhateverIsDone) {
  for (uint32_t seed = 0; seed < 80; ++seed) {
    SCOPED_TRACE(seed);
    Workload work(seed, false);
    work.UseScript();
    for (int i = 0; i < 60; ++i) work.Act();
    work.ExpectStats();
    if (HasFailure()) return;
  }
}

TEST(ExpertStoreRandomTest, WhateverIsDoneAndFails) {
  int failed = 0;
  for (uint32_t seed = 1000; seed < 1080; ++seed) {
    SCOPED_TRACE(seed);
    Workload work(seed, true);
    work.UseScript();
    for (int i = 0; i < 60; ++i) work.Act();
    work.ExpectStats();
    failed += work.failed();
    if (HasFailure()) return;
  }
  EXPECT_GT(failed, 100);  // so that it was tried
}

TEST(ExpertStoreRandomTest, ASlowDiskWithThreads) {
  for (uint32_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    Workload work(seed, false);
    work.UseThreads(std::chrono::microseconds(seed * 10));
    for (int i = 0; i < 40; ++i) work.Act();
    work.ExpectStats();
  }
}

}  // namespace
}  // namespace moewe::experts
