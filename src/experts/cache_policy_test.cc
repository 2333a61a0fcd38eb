// Cache policies against a plain model of each, and what holds between them.
#include "experts/cache_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "experts/expert_slots.h"
#include "experts/simulate.h"
#include "moewe/error.h"

namespace moewe::experts {
namespace {

// A run over `layers` layers of `experts` experts, some of which are chosen much more than others.
RoutingTrace RandomTrace(uint32_t layers, uint32_t experts, uint32_t top_k, uint32_t tokens,
                         uint32_t seed) {
  std::mt19937 random(seed);
  RoutingTrace trace;
  trace.num_layers = layers;
  trace.tokens = tokens;
  trace.layers.resize(layers);
  for (RoutingTrace::Layer& layer : trace.layers) {
    layer.top_k = top_k;
    layer.num_experts = experts;
  }
  for (uint32_t token = 0; token < tokens; ++token) {
    for (RoutingTrace::Layer& layer : trace.layers) {
      std::vector<uint32_t> row;
      while (row.size() < top_k) {
        const auto id = static_cast<uint32_t>(std::min(random() % experts, random() % experts));
        if (std::find(row.begin(), row.end(), id) == row.end()) row.push_back(id);
      }
      layer.ids.insert(layer.ids.end(), row.begin(), row.end());
    }
  }
  return trace;
}

struct Replay {
  explicit Replay(const RoutingTrace& of)
      : trace(of), ids(of.ExpertsPerLayer()), accesses(AccessesInOrder(of, ids)) {}
  uint64_t Hits(Policy policy, uint32_t slots, uint32_t floor = 0) const {
    return Simulate(trace, ids, accesses, policy, slots, floor).hits;
  }
  const RoutingTrace& trace;
  ExpertIds ids;
  std::vector<ExpertId> accesses;
};

TEST(ExpertIdsTest, LayersOfDifferentSizes) {
  const ExpertIds ids(std::vector<uint32_t>{3, 0, 2});
  EXPECT_EQ(ids.size(), 5u);
  EXPECT_EQ(ids.layers(), 3u);
  EXPECT_EQ(ids.id(2, 1), 4u);
  EXPECT_EQ(ids.layer(4), 2u);
  EXPECT_EQ(ids.layer(2), 0u);
  EXPECT_EQ(ids.experts(1), 0u);
}

TEST(CachePolicyTest, LruAndLfuOrder) {
  const ExpertIds ids(std::vector<uint32_t>{4});
  for (const bool lfu : {false, true}) {
    const auto policy = lfu ? MakeLfu(ids) : MakeLru(ids);
    EXPECT_FALSE(policy->Victim());
    for (const ExpertId id : {0u, 1u, 2u}) {
      policy->Use(id);
      policy->Insert(id);
    }
    policy->Use(0);
    policy->Use(0);
    policy->Use(1);
    policy->Use(2);
    EXPECT_EQ(policy->Victim(), lfu ? 1u : 0u);  // 0 was used most often, but not lately
    policy->Hold(lfu ? 1 : 0);
    EXPECT_EQ(policy->Victim(), lfu ? 2u : 1u);
    policy->Release(lfu ? 1 : 0);
    EXPECT_EQ(policy->Victim(), lfu ? 1u : 0u);
    policy->Remove(lfu ? 1 : 0);
    EXPECT_EQ(policy->Victim(), lfu ? 2u : 1u);
  }
}

TEST(CachePolicyTest, ALayerKeepsItsFloor) {
  const ExpertIds ids(std::vector<uint32_t>{4, 4});
  const auto policy = MakeLru(ids, 2);
  for (const ExpertId id : {0u, 1u, 4u, 5u, 6u}) {
    policy->Use(id);
    policy->Insert(id);
  }
  EXPECT_EQ(policy->Victim(), 4u);  // layer 0 has just its floor
  policy->Remove(4);
  EXPECT_FALSE(policy->Victim());
  policy->Use(2);
  policy->Insert(2);
  EXPECT_EQ(policy->Victim(), 0u);
}

TEST(ExpertSlotsTest, PlacesAreFilledOnceAndHeldOnesStay) {
  const ExpertIds ids(std::vector<uint32_t>{6});
  ExpertSlots cache(ids, 2, MakeLru(ids));
  EXPECT_FALSE(cache.Find(3));
  const auto first = cache.Take(3);
  ASSERT_TRUE(first);
  EXPECT_FALSE(first->evicted);
  EXPECT_FALSE(cache.Find(4));
  const auto second = cache.Take(4);
  ASSERT_TRUE(second);
  EXPECT_NE(first->slot, second->slot);
  EXPECT_EQ(cache.used(), 2u);
  EXPECT_FALSE(cache.Find(5));
  EXPECT_FALSE(cache.Take(5));  // both are held
  cache.Release(4);
  const auto third = cache.Take(5);
  ASSERT_TRUE(third);
  EXPECT_EQ(third->evicted, 4u);
  EXPECT_EQ(third->slot, second->slot);
  EXPECT_EQ(cache.Find(3), first->slot);
}

// LRU as a list, one access after the other.
uint64_t PlainLru(const std::vector<ExpertId>& accesses, size_t slots) {
  std::vector<ExpertId> list;  // most recent first
  uint64_t hits = 0;
  for (const ExpertId id : accesses) {
    const auto at = std::find(list.begin(), list.end(), id);
    if (at != list.end()) {
      ++hits;
      list.erase(at);
    } else if (list.size() == slots) {
      list.pop_back();
    }
    list.insert(list.begin(), id);
  }
  return hits;
}

TEST(SimulateTest, AgreesWithAPlainList) {
  // One expert at a time: then the order within a step does not matter.
  const RoutingTrace trace = RandomTrace(3, 12, 1, 400, 1);
  const Replay replay(trace);
  for (const uint32_t slots : {1u, 4u, 9u, 20u, 36u}) {
    EXPECT_EQ(replay.Hits(Policy::kLru, slots), PlainLru(replay.accesses, slots)) << slots;
    EXPECT_EQ(replay.Hits(Policy::kLruFloor, slots, 0), replay.Hits(Policy::kLru, slots));
  }
}

// The most hits that any choice of victims gives, by trying all.
uint64_t BestHits(const std::vector<ExpertId>& accesses, size_t slots) {
  std::map<std::vector<ExpertId>, uint64_t> states{{{}, 0}};  // resident, sorted -> most hits
  for (const ExpertId id : accesses) {
    std::map<std::vector<ExpertId>, uint64_t> next;
    const auto add = [&next](std::vector<ExpertId> resident, uint64_t hits) {
      std::sort(resident.begin(), resident.end());
      uint64_t& best = next[resident];
      best = std::max(best, hits);
    };
    for (const auto& [resident, hits] : states) {
      if (std::find(resident.begin(), resident.end(), id) != resident.end()) {
        add(resident, hits + 1);
        continue;
      }
      std::vector<ExpertId> with = resident;
      with.push_back(id);
      if (with.size() <= slots) {
        add(with, hits);
        continue;
      }
      for (size_t i = 0; i + 1 < with.size(); ++i) {
        std::vector<ExpertId> without = with;
        without.erase(without.begin() + static_cast<ptrdiff_t>(i));
        add(without, hits);
      }
    }
    states = std::move(next);
  }
  uint64_t best = 0;
  for (const auto& [resident, hits] : states) best = std::max(best, hits);
  return best;
}

TEST(SimulateTest, BeladyIsTheBestThereIs) {
  for (const uint32_t seed : {1u, 2u, 3u}) {
    const RoutingTrace trace = RandomTrace(2, 4, 1, 40, seed);
    const Replay replay(trace);
    for (const uint32_t slots : {2u, 3u, 5u}) {
      EXPECT_EQ(replay.Hits(Policy::kBelady, slots), BestHits(replay.accesses, slots));
    }
  }
}

TEST(SimulateTest, BoundsThatAlwaysHold) {
  const RoutingTrace trace = RandomTrace(4, 16, 3, 300, 5);
  const Replay replay(trace);
  uint64_t before = 0;
  for (uint32_t slots = 3; slots <= 64; slots += 7) {
    const uint64_t best = replay.Hits(Policy::kBelady, slots);
    EXPECT_GE(best, before);
    before = best;
    for (const Policy policy : {Policy::kLru, Policy::kLfu}) {
      EXPECT_LE(replay.Hits(policy, slots), best);
    }
    const uint32_t floor = LargestFloor(trace, slots, 3);
    EXPECT_LE(replay.Hits(Policy::kLruFloor, slots, floor), best);
  }
  // Room for all: every expert is missed once.
  std::vector<ExpertId> distinct = replay.accesses;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  EXPECT_EQ(replay.Hits(Policy::kLru, 64), replay.accesses.size() - distinct.size());
  EXPECT_THROW(replay.Hits(Policy::kLru, 2), Error);
  EXPECT_THROW(replay.Hits(Policy::kLruFloor, 8, 2), Error);
}

}  // namespace
}  // namespace moewe::experts
