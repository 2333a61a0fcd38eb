// What a store of experts reads before it is asked for: guesses at the next layer, and prewarming.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "experts/expert_store.h"
#include "experts/guess_score.h"
#include "experts/store_test_disk.h"
#include "moewe/error.h"

namespace moewe::experts {
namespace {

constexpr uint64_t kPage = kDiskAlignment;

using testing::ElementsAre;

struct Fixture {
  Fixture(std::vector<uint32_t> experts, uint32_t slots, uint32_t depth = 4)
      : stored(MakeLayers(experts, ExpertLayout::kRoles, kPage, 2, 5)) {
    disk.files = stored.files;
    disk.in_order = true;
    disk.depth = depth;
    disk.only_when_waited = true;
    StoreOptions options;
    options.arena_bytes = slots * 3 * kPage;
    store = std::make_unique<ExpertStore>(stored.layers, options, [this](std::span<uint8_t>) {
      return std::make_unique<ScriptedDisk>(&disk);
    });
  }

  void Step(uint32_t layer, std::vector<uint32_t> experts) {
    store->Begin(layer, experts);
    Finish(layer, experts.size());
  }
  void Finish(uint32_t layer, size_t count) {
    for (auto group = store->Next(); !group.empty(); group = store->Next()) {
      for (const LoadedExpert& loaded : group) {
        --count;
        for (size_t part = 0; part < 3; ++part) {
          ASSERT_TRUE(
              std::ranges::equal(loaded.parts[part], stored.Part(layer, loaded.expert, part)));
        }
      }
    }
    EXPECT_EQ(count, 0u);
  }
  void Prefetch(uint32_t layer, std::vector<uint32_t> experts) { store->Prefetch(layer, experts); }
  // Lets the disk end what it has begun and is queued.
  void Idle() {
    disk.only_when_waited = false;
    while (disk.pending > 0) store->Idle();
    disk.only_when_waited = true;
  }

  StoredLayers stored;
  DiskScript disk;
  std::unique_ptr<ExpertStore> store;
};

TEST(PrefetchTest, RightGuesses) {
  Fixture f({8, 8}, 16);
  f.Step(0, {0});
  f.Prefetch(1, {3, 5});
  EXPECT_EQ(f.disk.submitted.back().second, DiskUrgency::kPrefetch);
  f.Idle();
  const uint64_t waits = f.disk.waits;
  f.Step(1, {3, 5});
  EXPECT_EQ(f.disk.waits, waits);
  const StoreStats stats = f.store->stats();
  EXPECT_EQ(stats.missed, 1u);
  EXPECT_EQ(stats.prefetched, 2u);
  EXPECT_EQ(stats.prefetch_reads, 2u);
  EXPECT_EQ(stats.bytes_read, 9 * kPage);
  EXPECT_EQ(stats.bytes_demanded, 3 * kPage);
  f.Step(1, {3, 5});
  EXPECT_EQ(f.store->stats().prefetched, 2u);  // the second use is an ordinary one
  EXPECT_EQ(f.store->stats().resident, 2u);
}

TEST(PrefetchTest, OnesThatAreNotThereYetAreWaitedFor) {
  Fixture f({8, 8}, 16, 1);
  f.Prefetch(1, {3, 5, 6});  // of nine reads one has begun
  f.Step(1, {2, 6});
  const StoreStats stats = f.store->stats();
  EXPECT_EQ(stats.prefetched, 1u);
  EXPECT_EQ(stats.missed, 1u);
  EXPECT_EQ(stats.prefetch_reads, 1u);
  // The begun read of expert 3 and six of the step's; the rest was taken back.
  EXPECT_EQ(stats.bytes_read, 7 * kPage);
  EXPECT_EQ(stats.bytes_demanded, 3 * kPage);
  f.Step(1, {3, 5});
  EXPECT_EQ(f.store->stats().missed, 3u);
}

// Two of three reads were taken back when a step wanted something else; then it is asked for.
TEST(PrefetchTest, HalfTakenBackAndThenWanted) {
  Fixture f({8, 8}, 16, 1);
  f.Prefetch(1, {3});
  f.store->Begin(0, std::vector<uint32_t>{0});
  f.store->Begin(1, std::vector<uint32_t>{3});
  f.Finish(1, 1);
  EXPECT_EQ(f.store->stats().prefetched, 1u);
  f.Step(0, {0});
}

TEST(PrefetchTest, WrongOnesAreTheFirstToGo) {
  Fixture f({8, 8}, 8);
  f.Step(0, {0, 1, 2, 3, 4, 5});
  f.Prefetch(1, {6, 7});
  f.Idle();
  f.Step(1, {0, 1});  // in their places
  EXPECT_EQ(f.store->stats().prefetch_unused, 2u);
  const uint64_t missed = f.store->stats().missed;
  f.Step(0, {0, 1, 2, 3, 4, 5});
  EXPECT_EQ(f.store->stats().missed, missed);
}

TEST(PrefetchTest, NeverMoreThanAShareOfTheSlots) {
  Fixture f({16, 16}, 8, 64);
  f.Prefetch(1, {0, 1, 2, 3, 4, 5});
  f.Prefetch(1, {6, 7});
  EXPECT_EQ(f.disk.submitted.size(), 2 * 3u);
  Fixture small({16, 16}, 3);
  small.Prefetch(1, {0, 1});
  EXPECT_TRUE(small.disk.submitted.empty());
  EXPECT_FALSE(small.store->WantsGuesses());
}

// The second look at a layer takes back what it does not repeat, but for what has begun.
TEST(PrefetchTest, ABetterGuessReplacesWhatHasNotBegun) {
  Fixture f({16, 16}, 32, 1);
  f.Prefetch(1, {3, 5, 6});  // of nine reads one has begun
  f.Prefetch(1, {5, 7});
  f.Idle();
  EXPECT_EQ(f.store->stats().bytes_read, 7 * kPage);
  f.Step(1, {5, 7});
  StoreStats stats = f.store->stats();
  EXPECT_EQ(stats.prefetched, 2u);
  EXPECT_EQ(stats.missed, 0u);
  EXPECT_EQ(stats.bytes_read, 7 * kPage);
  // A repeated guess reads nothing twice.
  f.Prefetch(1, {8, 9});
  f.Prefetch(1, {9, 8});
  f.Step(1, {8, 9});
  EXPECT_EQ(f.store->stats().bytes_read, 13 * kPage);
  // Other layers' guesses stay.
  f.Prefetch(0, {1, 2});
  f.Prefetch(1, {10});
  f.Idle();
  f.Step(0, {1, 2});
  EXPECT_EQ(f.store->stats().prefetched, 6u);
}

TEST(PrefetchTest, TakingBackOneLayersGuessesLeavesTheOthers) {
  Fixture f({16, 16}, 48, 1);
  f.Prefetch(0, {1, 2, 3});
  f.Prefetch(1, {10, 11});
  f.Prefetch(1, {12});  // nothing has begun but a part of the first, which is lost
  f.Idle();
  const uint64_t waits = f.disk.waits;
  f.Step(0, {2, 3});
  EXPECT_EQ(f.store->stats().prefetched, 2u);
  f.Step(1, {12});
  EXPECT_EQ(f.store->stats().prefetched, 3u);
  EXPECT_EQ(f.disk.waits, waits);
}

// The least arena, a quarter of it with guesses that are being read or kept: they yield.
TEST(PrefetchTest, DemandTakesTheSlotsOfGuesses) {
  for (const bool read : {false, true}) {
    for (const uint32_t depth : {1u, 64u}) {
      Fixture f({16, 16, 16}, 4, depth);
      f.Step(0, {0, 1, 2, 3});
      f.Prefetch(2, {0});
      if (read) f.Idle();
      f.Step(1, {4, 5, 6, 7});
      f.Step(2, {4, 5, 6, 7});
      EXPECT_EQ(f.store->stats().missed, 12u);
    }
  }
}

// Guesses hold their slots until their layer's step.
TEST(PrefetchTest, GuessesStayUntilTheirStep) {
  Fixture f({16, 16}, 12);
  f.Prefetch(1, {0, 1, 2});
  f.Idle();
  for (uint32_t i = 0; i < 16; ++i) f.Step(0, {i});
  f.Step(1, {0, 1, 2});
  EXPECT_EQ(f.store->stats().prefetched, 3u);
}

TEST(PrefetchTest, AFailedGuessIsReadAgainWhenAskedFor) {
  Fixture f({8, 8}, 16);
  int failures = 1;
  f.disk.fault = [&](const DiskRead&) { return failures-- > 0 ? EIO : 0; };
  f.Prefetch(1, {3});
  f.Idle();
  EXPECT_EQ(f.store->stats().retries, 0u);  // nobody waits for it
  f.Step(1, {3});
  EXPECT_EQ(f.store->stats().missed, 1u);
  EXPECT_EQ(f.store->stats().prefetch_reads, 0u);
}

TEST(PrefetchTest, WrongGuessesStopAndRightOnesBringThemBack) {
  Fixture f({64, 64}, 16);
  uint32_t next = 0;
  const auto token = [&](bool right) {
    const uint32_t expert = next++ % 64;
    f.Step(0, {expert});
    f.Prefetch(1, {expert});
    f.Idle();
    f.Step(1, {right ? expert : (expert + 32) % 64});
  };
  for (int i = 0; i < 100; ++i) token(false);
  const uint64_t reads = f.store->stats().prefetch_reads;
  EXPECT_GE(reads, 8u);
  EXPECT_LE(reads, 32u);  // a hundred without the score
  uint32_t wanted = 0;
  for (int i = 0; i < 64; ++i) {
    if (f.store->WantsGuesses()) ++wanted;
    token(false);
  }
  EXPECT_GT(wanted, 0u);
  EXPECT_LT(wanted, 16u);
  EXPECT_EQ(f.store->stats().prefetch_reads, reads);
  for (int i = 0; i < 100; ++i) token(true);
  EXPECT_GE(f.store->stats().prefetch_reads, reads + 30);
  EXPECT_TRUE(f.store->WantsGuesses());
}

TEST(PrewarmTest, TheMostUsedUpToHalfOfTheSlots) {
  Fixture f({4, 4}, 6);
  f.store->Prewarm(std::vector<uint64_t>{0, 9, 0, 1, 7, 0, 0, 2});
  f.Idle();
  EXPECT_EQ(f.store->stats().bytes_read, 9 * kPage);
  f.Step(0, {1});
  f.Step(1, {0, 3});
  EXPECT_EQ(f.store->stats().prefetched, 3u);
  EXPECT_EQ(f.store->stats().missed, 0u);
  // Used ones count no longer: there is room for what else is known to be used.
  f.store->Prewarm(std::vector<uint64_t>{0, 9, 0, 1, 7, 0, 0, 2});
  f.Idle();
  f.Step(0, {3});
  EXPECT_EQ(f.store->stats().prefetched, 4u);
  EXPECT_THROW(f.store->Prewarm(std::vector<uint64_t>{1}), Error);
}

TEST(PrewarmTest, OnlyFreeSlotsAndTheLeastUsedGoFirst) {
  Fixture f({4, 4}, 4);
  f.Step(0, {0, 1, 2});
  f.store->Prewarm(std::vector<uint64_t>{0, 0, 0, 0, 5, 6, 0, 0});
  f.Idle();
  EXPECT_EQ(f.disk.submitted.size(), 4 * 3u);
  f.Step(1, {2});  // evicts the prewarmed one
  EXPECT_EQ(f.store->stats().prefetch_unused, 1u);

  Fixture g({4, 4}, 5);
  g.store->Prewarm(std::vector<uint64_t>{3, 8, 0, 0, 0, 0, 0, 0});
  g.Idle();
  g.Step(1, {0, 1, 2, 3});
  g.Step(0, {1});
  EXPECT_EQ(g.store->stats().prefetched, 1u);
}

TEST(PrewarmTest, AMissTakesBackWhatHasNotBegun) {
  Fixture f({16, 16}, 32, 2);
  std::vector<uint64_t> counts(32, 0);
  for (size_t i = 0; i < 16; ++i) counts[i] = 16 - i;
  f.store->Prewarm(counts);
  EXPECT_EQ(f.disk.pending, 16 * 3u);
  f.store->Begin(1, std::vector<uint32_t>{0});
  EXPECT_EQ(f.disk.pending, 2u + 3u);  // what has begun, and the step's
  f.Finish(1, 1);
  EXPECT_EQ(f.store->stats().missed, 1u);
  f.store->Prewarm(counts);  // goes on
  f.Idle();
  f.Step(0, {0, 1, 2, 3, 15});
  EXPECT_EQ(f.store->stats().missed, 1u);
}

}  // namespace
}  // namespace moewe::experts
