#include "model/expert_usage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

namespace moewe::model {
namespace {

TEST(ExpertUsage, WithoutPreferencesTheHitRateIsTheShareOfSlots) {
  const std::vector<uint64_t> never(64, 0);
  const std::vector<uint64_t> even(64, 1000);
  for (const uint64_t slots : {1, 16, 63}) {
    EXPECT_NEAR(ExpectedHitRate(never, slots), static_cast<double>(slots) / 64, 1e-9);
    EXPECT_NEAR(ExpectedHitRate(even, slots), static_cast<double>(slots) / 64, 1e-9);
  }
  EXPECT_NEAR(ExpectedHitRate(even, 0), 0.0, 1e-9);
  EXPECT_EQ(ExpectedHitRate(even, 64), 1.0);
  EXPECT_EQ(ExpectedHitRate({}, 0), 1.0);
}

// Against a cache that does it.
TEST(ExpertUsage, IsWhatALeastRecentlyUsedCacheHits) {
  std::vector<uint64_t> counts;
  for (uint64_t i = 0; i < 60; ++i) counts.push_back(60000 / (i + 1));
  std::mt19937 random(1);
  std::discrete_distribution<int> draw(counts.begin(), counts.end());
  for (const size_t slots : {6, 20, 45}) {
    std::deque<int> cache;  // the most recent first
    int hits = 0;
    constexpr int kUses = 40000;
    for (int i = 0; i < kUses; ++i) {
      const int expert = draw(random);
      const auto found = std::find(cache.begin(), cache.end(), expert);
      if (found != cache.end()) {
        ++hits;
        cache.erase(found);
      } else if (cache.size() == slots) {
        cache.pop_back();
      }
      cache.push_front(expert);
    }
    EXPECT_NEAR(ExpectedHitRate(counts, slots), static_cast<double>(hits) / kUses, 0.015) << slots;
  }
}

}  // namespace
}  // namespace moewe::model
