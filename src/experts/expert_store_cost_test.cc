// What a step costs whose experts are all in memory: no allocation, and no call of the disk reader.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "experts/expert_store.h"
#include "experts/store_test_disk.h"

namespace {
std::atomic<uint64_t> allocations{0};

void* Counted(size_t bytes) noexcept {
  ++allocations;
  return std::malloc(bytes);
}
}  // namespace

// All forms that an ordinary delete may get back: one left to the library would be another
// allocator's under a sanitizer.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return Counted(bytes); }
void* operator new(size_t bytes) {
  if (void* memory = Counted(bytes)) return memory;
  throw std::bad_alloc();
}
// Where they are inlined, GCC takes std::free for a mismatch of new.
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

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
  const uint64_t before = allocations;
  const uint64_t handed = tokens(50);
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(handed, 50u * 3 * 8);
  EXPECT_EQ(store.stats().resident, handed);
  EXPECT_EQ(store.stats().wait_seconds, 0.0);
  EXPECT_EQ(disk.reaps + disk.submits, 0u);
}

}  // namespace
}  // namespace moewe::experts
