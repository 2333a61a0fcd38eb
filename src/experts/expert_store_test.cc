// The store of streamed experts: what a step costs, what is read, what stays, what fails.
#include "experts/expert_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "experts/expert_reads.h"
#include "experts/expert_slots.h"
#include "experts/store_test_disk.h"
#include "moewe/error.h"

namespace moewe::experts {
namespace {

constexpr uint64_t kPage = kDiskAlignment;

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

StoreOptions WithFloor(uint32_t floor) {
  StoreOptions options;
  options.floor = floor;
  return options;
}

// A store of experts of three pages over a scripted disk.
struct Fixture {
  Fixture(std::vector<uint32_t> experts, uint32_t slots, StoreOptions options = {})
      : stored(MakeLayers(experts, ExpertLayout::kRecords, kPage, 1, 3)) {
    disk.files = stored.files;
    disk.in_order = true;
    disk.only_when_waited = true;
    options.arena_bytes = slots * 3 * kPage;
    options.files = {"the.file"};
    store = std::make_unique<ExpertStore>(stored.layers, options, [this](std::span<uint8_t>) {
      return std::make_unique<ScriptedDisk>(&disk);
    });
  }

  // The next group's experts; their bytes are checked.
  std::vector<uint32_t> Next(uint32_t layer) {
    std::vector<uint32_t> experts;
    for (const LoadedExpert& loaded : store->Next()) {
      experts.push_back(loaded.expert);
      EXPECT_LT(loaded.slot, store->slots());
      for (size_t part = 0; part < 3; ++part) {
        EXPECT_TRUE(
            std::ranges::equal(loaded.parts[part], stored.Part(layer, loaded.expert, part)));
      }
    }
    return experts;
  }

  // A whole step; what it handed out, in order.
  std::vector<uint32_t> Step(uint32_t layer, std::vector<uint32_t> experts) {
    store->Begin(layer, experts);
    std::vector<uint32_t> all;
    for (std::vector<uint32_t> group = Next(layer); !group.empty(); group = Next(layer)) {
      all.insert(all.end(), group.begin(), group.end());
    }
    std::vector<uint32_t> sorted = all;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(sorted, experts);
    return all;
  }

  uint64_t Missed(uint32_t layer, const std::vector<uint32_t>& experts) {
    const uint64_t before = store->stats().missed;
    Step(layer, experts);
    return store->stats().missed - before;
  }

  // What Next throws on the way through a step.
  Error Failure(uint32_t layer, const std::vector<uint32_t>& experts) {
    store->Begin(layer, experts);
    try {
      while (!Next(layer).empty()) {
      }
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "nothing was thrown";
    return {ErrorCode::kInternal, ""};
  }

  StoredLayers stored;
  DiskScript disk;
  std::unique_ptr<ExpertStore> store;
};

std::vector<uint32_t> FirstOnes(uint32_t count) {
  std::vector<uint32_t> experts(count);
  for (uint32_t i = 0; i < count; ++i) experts[i] = i;
  return experts;
}

TEST(ReadPlanTest, PartsThatTouchOrShareAPageAreOneRead) {
  // Up lies first; gate begins on the page that up ends on.
  const ReadPlan one =
      PlanReads({Extent{0, 5000, 4000}, Extent{0, 100, 4800}, Extent{0, 12288, 9}});
  ASSERT_EQ(one.count, 1u);
  EXPECT_EQ(one.reads[0].offset, 0u);
  EXPECT_EQ(one.reads[0].bytes, 4 * kPage);
  EXPECT_EQ(one.reads[0].needed, 12297u);
  EXPECT_EQ(one.slot_bytes, 4 * kPage);
  EXPECT_THAT(one.part_at, ElementsAre(5000, 100, 12288));

  // A page between, and another file.
  const ReadPlan three =
      PlanReads({Extent{0, 3 * kPage, 10}, Extent{1, 7, kPage}, Extent{0, kPage + 4, 8}});
  ASSERT_EQ(three.count, 3u);
  EXPECT_EQ(three.reads[0].offset, kPage);
  EXPECT_EQ(three.reads[0].needed, 12u);
  EXPECT_EQ(three.reads[1].offset, 3 * kPage);
  EXPECT_EQ(three.reads[2].file, 1u);
  EXPECT_EQ(three.reads[2].bytes, 2 * kPage);
  EXPECT_EQ(three.slot_bytes, 4 * kPage);
  EXPECT_THAT(three.part_at, ElementsAre(kPage, 2 * kPage + 7, 4));
  EXPECT_THROW(PlanReads({Extent{0, UINT64_MAX - 5, 10}, Extent{}, Extent{}}), Error);
}

TEST(ExpertStoreTest, SizesOfArenas) {
  const StoredLayers stored = MakeLayers({4, 0, 6}, ExpertLayout::kRecords, kPage, 1, 1);
  EXPECT_EQ(ExpertStore::SlotBytes(stored.layers), 3 * kPage);
  EXPECT_EQ(ExpertStore::MinArenaBytes(stored.layers, 2), 2 * 3 * kPage);
  EXPECT_EQ(ExpertStore::MinArenaBytes(stored.layers, 16), 6 * 3 * kPage);
  EXPECT_EQ(Fixture({4, 0, 6}, 100).store->slots(), 10u);  // no more than there are experts
  EXPECT_THROW(Fixture({4}, 0), Error);
  EXPECT_THROW(Fixture({}, 4), Error);
}

TEST(ExpertStoreTest, ResidentOnesFirstThenAsTheReadsEnd) {
  Fixture f({8, 8}, 8);
  EXPECT_THAT(f.Step(0, {1, 5}), ElementsAre(1, 5));
  f.store->Begin(0, std::vector<uint32_t>{0, 1, 2, 5});
  EXPECT_EQ(f.disk.submits, 2u);  // all reads of a step at once
  EXPECT_THAT(f.Next(0), ElementsAre(1, 5));
  const uint64_t waits = f.disk.waits;
  EXPECT_THAT(f.Next(0), ElementsAre(0));
  EXPECT_THAT(f.Next(0), ElementsAre(2));
  EXPECT_EQ(f.disk.waits, waits + 2);
  EXPECT_THAT(f.Next(0), IsEmpty());
  EXPECT_THAT(f.Next(0), IsEmpty());
}

TEST(ExpertStoreTest, StatisticsOfASmallRun) {
  Fixture f({4, 4}, 3);
  f.Step(0, {0, 1});
  f.Step(0, {1, 2});
  f.Step(1, {3});  // evicts expert 0 of layer 0
  f.Step(0, {0});  // evicts expert 1: it was used in the second step, before 2 was read
  f.Step(0, {0, 2});
  const StoreStats stats = f.store->stats();
  EXPECT_EQ(stats.slots, 3u);
  EXPECT_EQ(stats.experts, 8u);
  EXPECT_EQ(stats.arena_bytes, 9 * kPage);
  EXPECT_EQ(stats.missed, 5u);
  EXPECT_EQ(stats.resident, 3u);
  EXPECT_EQ(stats.prefetched, 0u);
  EXPECT_EQ(stats.bytes_read, 5 * 3 * kPage);
  EXPECT_EQ(stats.bytes_demanded, 5 * 3 * kPage);
  EXPECT_EQ(stats.prefetch_reads, 0u);
  EXPECT_EQ(stats.retries, 0u);
  EXPECT_DOUBLE_EQ(stats.hit_rate(), 3.0 / 8.0);
  EXPECT_THAT(f.store->counts(), ElementsAre(3, 2, 2, 0, 0, 0, 0, 1));
  f.store->ResetStats();
  EXPECT_EQ(f.store->stats().missed, 0u);
  EXPECT_EQ(f.store->stats().bytes_read, 0u);
  EXPECT_EQ(f.store->stats().slots, 3u);
  EXPECT_EQ(f.store->stats().hit_rate(), 0.0);
}

// More than there is room for: in file order, and while a group is computed with, the next ones are
// being read.
TEST(ExpertStoreTest, AStepLargerThanTheArena) {
  Fixture f({64}, 4);
  f.store->Begin(0, FirstOnes(64));
  std::vector<uint32_t> all;
  for (std::vector<uint32_t> group = f.Next(0); !group.empty(); group = f.Next(0)) {
    all.insert(all.end(), group.begin(), group.end());
    if (all.size() < 61) {
      EXPECT_GT(f.disk.pending, 0u) << all.size();
    }
    EXPECT_LE(group.size(), 2u);
  }
  EXPECT_EQ(all, FirstOnes(64));
  EXPECT_EQ(f.disk.submitted.size(), 64u);
  EXPECT_EQ(f.store->stats().missed, 64u);
  // Again: what is there comes along with the others, and each of those is read once.
  f.Step(0, FirstOnes(64));
  EXPECT_EQ(f.store->stats().resident, 4u);
  EXPECT_EQ(f.disk.submitted.size(), 64u + 60u);
}

TEST(ExpertStoreTest, OneSlotIsEnough) {
  Fixture f({3, 1}, 1);
  EXPECT_THAT(f.Step(0, {0, 1, 2}), ElementsAre(0, 1, 2));
  EXPECT_THAT(f.Step(1, {0}), ElementsAre(0));
  EXPECT_THAT(f.Step(1, {0}), ElementsAre(0));
  EXPECT_EQ(f.store->stats().resident, 1u);
}

TEST(ExpertStoreTest, OneSlotALayer) {
  Fixture f({1, 1, 1}, 3, WithFloor(1));
  for (int round = 0; round < 2; ++round) {
    for (uint32_t layer = 0; layer < 3; ++layer) f.Step(layer, {0});
  }
  EXPECT_EQ(f.store->stats().missed, 3u);
  EXPECT_EQ(f.store->stats().resident, 3u);
}

TEST(ExpertStoreTest, SixteenAtOnceInTheLeastArena) {
  Fixture f(std::vector<uint32_t>(3, 40), 16, WithFloor(16));  // more than there is room for
  std::vector<uint32_t> experts = FirstOnes(16);
  for (uint32_t layer = 0; layer < 3; ++layer) {
    f.store->Begin(layer, experts);
    // All of them at once, whoever was there before.
    EXPECT_EQ(f.disk.submitted.size(), (layer + 1) * 16u);
    while (!f.Next(layer).empty()) {
    }
  }
}

TEST(ExpertStoreTest, ALayerKeepsItsFloor) {
  for (const uint32_t floor : {0u, 2u}) {
    Fixture f({16, 16}, 8, WithFloor(floor));
    f.Step(0, {0, 1});
    for (uint32_t i = 0; i < 16; ++i) f.Step(1, {i});
    EXPECT_EQ(f.Missed(0, {0, 1}), 2u - floor);
  }
}

// What a cache that evicts the least recently used misses, one access after the other.
class PlainLru {
 public:
  PlainLru(const ExpertIds& ids, uint32_t slots) : ids_(ids), slots_(ids, slots, MakeLru(ids)) {}
  uint64_t Missed(uint32_t layer, const std::vector<uint32_t>& experts) {
    uint64_t missed = 0;
    for (const uint32_t expert : experts) {
      const ExpertId id = ids_.id(layer, expert);
      if (!slots_.Find(id)) {
        ++missed;
        EXPECT_TRUE(slots_.Take(id));
      }
      slots_.Release(id);
    }
    return missed;
  }

 private:
  const ExpertIds& ids_;
  ExpertSlots slots_;
};

// Decode uses few experts of each layer over and over; then a prompt needs all of them.
TEST(ExpertStoreTest, APromptLeavesTheHotSet) {
  const uint32_t layers = 4;
  Fixture f(std::vector<uint32_t>(layers, 64), 96);
  PlainLru lru(f.store->ids(), 96);
  const auto decode = [&](auto& cache) {
    uint64_t missed = 0;
    for (uint32_t token = 0; token < 8; ++token) {
      for (uint32_t layer = 0; layer < layers; ++layer) {
        missed += cache.Missed(layer, {layer * 5, 52, 54 + token % 2});
      }
    }
    return missed;
  };
  const auto prompt = [&](auto& cache) {
    uint64_t missed = 0;
    for (uint32_t layer = 0; layer < layers; ++layer) {
      missed += cache.Missed(layer, FirstOnes(64));
    }
    return missed;
  };
  EXPECT_EQ(decode(f), decode(lru));
  EXPECT_LE(prompt(f), prompt(lru));
  EXPECT_EQ(decode(f), 0u);
  EXPECT_GE(decode(lru), 8u);
  // The next one finds what the layers have kept beside the window: 72 slots.
  EXPECT_LE(prompt(f), layers * 64u - 72u);
  EXPECT_GE(prompt(lru), layers * 64u - 16u);
}

// Everything fits: then everything stays, however it came.
TEST(ExpertStoreTest, RoomForAll) {
  Fixture f(std::vector<uint32_t>(3, 64), 192);
  for (uint32_t layer = 0; layer < 3; ++layer) EXPECT_EQ(f.Missed(layer, FirstOnes(64)), 64u);
  for (uint32_t layer = 0; layer < 3; ++layer) EXPECT_EQ(f.Missed(layer, FirstOnes(64)), 0u);
}

TEST(ExpertStoreTest, AReadThatFailsOnceIsRepeated) {
  Fixture f({8}, 4);
  int failures = 1;
  f.disk.fault = [&](const DiskRead&) { return failures-- > 0 ? EIO : 0; };
  EXPECT_THAT(f.Step(0, {2, 3}), ElementsAre(3, 2));
  EXPECT_EQ(f.store->stats().retries, 1u);
  EXPECT_EQ(f.store->stats().missed, 2u);
}

TEST(ExpertStoreTest, AReadThatFailsTwiceEndsTheStep) {
  Fixture f({8, 8}, 4);
  bool broken = true;
  f.disk.fault = [&](const DiskRead& read) {
    return broken && read.offset == 11 * 3 * kPage ? EIO : 0;
  };
  f.Step(1, {0});
  const Error error = f.Failure(1, {0, 2, 3, 4});
  EXPECT_EQ(error.code(), ErrorCode::kIo);
  EXPECT_EQ(error.where().file, "the.file");
  EXPECT_EQ(error.where().offset, 11 * 3 * kPage);
  EXPECT_THAT(error.what(), HasSubstr("layer 1, expert 3"));
  EXPECT_THROW(f.store->Next(), Error);  // the step is over
  // Others work, and so does this one when the disk does.
  f.Step(1, {1, 2, 4, 5});
  EXPECT_EQ(f.Failure(1, {3}).code(), ErrorCode::kIo);
  broken = false;
  EXPECT_THAT(f.Step(1, {3}), ElementsAre(3));
}

TEST(ExpertStoreTest, AFileThatHasBecomeShorter) {
  Fixture f({4}, 4);
  f.Step(0, {0});
  f.disk.files[0].resize(10 * kPage - 1);
  f.Step(0, {0, 2});
  const Error error = f.Failure(0, {3});
  EXPECT_EQ(error.code(), ErrorCode::kIo);
  EXPECT_THAT(error.what(), HasSubstr("ends 8193 bytes early"));
  f.Step(0, {1});
}

TEST(ExpertStoreTest, ChecksSeeEveryReadOnce) {
  std::map<std::pair<uint32_t, uint32_t>, int> seen;
  int bad = 0;
  StoreOptions options;
  options.check = [&](uint32_t layer, const LoadedExpert& loaded) {
    ++seen[{layer, loaded.expert}];
    if (loaded.expert == 7 && bad-- > 0) throw Error(ErrorCode::kHashMismatch, "wrong bytes");
  };
  Fixture f({8, 8}, 4, options);
  f.Step(0, {0, 1});
  f.Step(0, {0, 1});
  EXPECT_EQ((seen[{0, 0}]), 1);
  bad = 1;
  f.Step(1, {6, 7});
  EXPECT_EQ((seen[{1, 6}]), 1);
  EXPECT_EQ((seen[{1, 7}]), 2);
  EXPECT_EQ(f.store->stats().retries, 1u);
  bad = 2;
  f.Step(0, {2, 3});
  f.Step(0, {4, 5});
  EXPECT_EQ(f.Failure(1, {5, 7}).code(), ErrorCode::kHashMismatch);
  EXPECT_EQ((seen[{1, 7}]), 4);
  f.Step(1, {5, 6, 7});
  EXPECT_EQ((seen[{1, 7}]), 5);  // bad bytes do not stay
}

// An exception of the caller's own, between two calls of Next.
TEST(ExpertStoreTest, AStepThatWasLeftHolds) {
  Fixture f({64, 64}, 4);
  for (int round = 0; round < 5; ++round) {
    f.store->Begin(0, FirstOnes(64));
    f.Next(0);
    f.Next(0);
    f.store->Begin(1, std::vector<uint32_t>{1, 2, 3, 4});
    f.Next(1);
  }
  EXPECT_THAT(f.Step(1, {1, 2, 3, 4}).size(), 4u);
  EXPECT_THROW(f.store->Begin(2, {}), Error);
  EXPECT_THROW(f.store->Begin(0, std::vector<uint32_t>{64}), Error);
  f.Step(0, {63});
}

}  // namespace
}  // namespace moewe::experts
