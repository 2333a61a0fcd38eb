// What a step costs whose experts are all in memory: no allocation, and no call of the disk reader.
#include <gtest/gtest.h>

#include "counted_allocations.h"
#include "experts/expert_store.h"
#include "experts/store_test_disk.h"

namespace moewe::experts {
namespace {

TEST(ExpertStoreCostTest, ResidentStepsAllocateNothing) {
  const StoredLayers stored =
      MakeLayers({32, 32, 32}, ExpertLayout::kRecords, kDiskAlignment, 1, 3);
  DiskScript disk;
  disk.files = stored.files;
  StoreOptions options;
  options.arena_bytes = 64 * ExpertStore::SlotBytes(stored.layers);
  options.floor = 4;
  ExpertStore store(stored.layers, options,
                    [&](std::span<uint8_t>) { return std::make_unique<ScriptedDisk>(&disk); });
  const auto tokens = [&store](uint32_t count) {
    uint64_t handed = 0;
    for (uint32_t token = 0; token < count; ++token) {
      for (uint32_t layer = 0; layer < 3; ++layer) {
        uint32_t experts[8];
        for (uint32_t i = 0; i < 8; ++i) experts[i] = 2 * i + (token + layer) % 3;
        store.Begin(layer, experts);
        for (auto group = store.Next(); !group.empty(); group = store.Next()) {
          handed += group.size();
        }
        store.Prefetch((layer + 1) % 3, experts);
      }
    }
    return handed;
  };
  tokens(9);
  store.ResetStats();
  disk.reaps = disk.submits = 0;
  const uint64_t before = counted_allocations;
  const uint64_t handed = tokens(50);
  EXPECT_EQ(counted_allocations, before);
  EXPECT_EQ(handed, 50u * 3 * 8);
  EXPECT_EQ(store.stats().resident, handed);
  EXPECT_EQ(store.stats().wait_seconds, 0.0);
  EXPECT_EQ(disk.reaps + disk.submits, 0u);
}

}  // namespace
}  // namespace moewe::experts
