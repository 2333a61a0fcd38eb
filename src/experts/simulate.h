// How often a cache of experts would have had what a recorded run asked for.
#ifndef MOEWE_EXPERTS_SIMULATE_H_
#define MOEWE_EXPERTS_SIMULATE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experts/cache_policy.h"

namespace moewe::experts {

// A recorded run: what each token was routed to, layer by layer.
struct RoutingTrace {
  struct Layer {
    uint32_t top_k = 0;         // 0 = no experts
    uint32_t num_experts = 0;   // all ids are below
    std::vector<uint32_t> ids;  // [tokens, top_k]
  };
  std::vector<Layer> layers;  // in a looped model one a visit
  // Visits of a looped model with one layer's experts count as that layer: visit % num_layers.
  uint32_t num_layers = 0;
  uint64_t tokens = 0;
  std::optional<uint64_t> expert_bytes;  // of an average expert, if the recorder said

  std::vector<uint32_t> ExpertsPerLayer() const;
  uint64_t experts() const;       // of all layers
  uint32_t most_at_once() const;  // places that a step needs: the largest top_k
};

enum class Policy : uint8_t { kLru, kLruFloor, kLfu, kBelady };
std::string_view PolicyName(Policy policy);  // "lru", "lru+floor", "lfu", "optimal"

struct CacheResult {
  uint64_t accesses = 0;
  uint64_t hits = 0;
  double hit_rate() const {
    return accesses == 0 ? 0.0 : static_cast<double>(hits) / static_cast<double>(accesses);
  }
};

// The trace's accesses in the order of decoding: token after token, in each its layers in order.
std::vector<ExpertId> AccessesInOrder(const RoutingTrace& trace, const ExpertIds& ids);

// Replays the trace in that order, from an empty cache of `slots` experts. All experts of one layer
// and token are needed together, and a missing one is always loaded. `floor` counts for
// Policy::kLruFloor. `accesses` is AccessesInOrder. Throws Error{kUsage} unless slots >=
// most_at_once(), and for a floor that leaves no room: floor * layers + most_at_once() > slots.
CacheResult Simulate(const RoutingTrace& trace, const ExpertIds& ids,
                     std::span<const ExpertId> accesses, Policy policy, uint32_t slots,
                     uint32_t floor);

// The largest floor that Simulate takes, at most `wanted`.
uint32_t LargestFloor(const RoutingTrace& trace, uint32_t slots, uint32_t wanted);

}  // namespace moewe::experts

#endif  // MOEWE_EXPERTS_SIMULATE_H_
