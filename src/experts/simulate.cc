#include "experts/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "experts/expert_slots.h"
#include "moewe/error.h"

namespace moewe::experts {
namespace {

std::unique_ptr<CachePolicy> Make(Policy policy, const ExpertIds& ids,
                                  std::span<const ExpertId> accesses, uint32_t floor) {
  switch (policy) {
    case Policy::kLruFloor:
      return MakeLru(ids, floor);
    case Policy::kLfu:
      return MakeLfu(ids);
    case Policy::kBelady:
      return MakeBelady(ids, accesses);
    case Policy::kLru:
      break;
  }
  return MakeLru(ids);
}

}  // namespace

std::vector<uint32_t> RoutingTrace::ExpertsPerLayer() const {
  std::vector<uint32_t> experts(num_layers, 0);
  for (size_t visit = 0; visit < layers.size(); ++visit) {
    uint32_t& of_layer = experts[visit % num_layers];
    of_layer = std::max(of_layer, layers[visit].num_experts);
  }
  return experts;
}

uint64_t RoutingTrace::experts() const {
  const std::vector<uint32_t> of_layers = ExpertsPerLayer();
  return std::accumulate(of_layers.begin(), of_layers.end(), uint64_t{0});
}

uint32_t RoutingTrace::most_at_once() const {
  uint32_t most = 0;
  for (const Layer& layer : layers) most = std::max(most, layer.top_k);
  return most;
}

std::string_view PolicyName(Policy policy) {
  switch (policy) {
    case Policy::kLru:
      return "lru";
    case Policy::kLruFloor:
      return "lru+floor";
    case Policy::kLfu:
      return "lfu";
    case Policy::kBelady:
      return "optimal";
  }
  return "";
}

std::vector<ExpertId> AccessesInOrder(const RoutingTrace& trace, const ExpertIds& ids) {
  std::vector<ExpertId> accesses;
  for (uint64_t token = 0; token < trace.tokens; ++token) {
    for (uint32_t visit = 0; visit < trace.layers.size(); ++visit) {
      const RoutingTrace::Layer& layer = trace.layers[visit];
      for (uint64_t i = token * layer.top_k; i < (token + 1) * layer.top_k; ++i) {
        accesses.push_back(ids.id(visit % trace.num_layers, layer.ids[i]));
      }
    }
  }
  return accesses;
}

CacheResult Simulate(const RoutingTrace& trace, const ExpertIds& ids,
                     std::span<const ExpertId> accesses, Policy policy, uint32_t slots,
                     uint32_t floor) {
  const uint32_t need = trace.most_at_once();
  if (slots < need) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{} slots: a step needs {} experts at once", slots, need));
  }
  if (policy == Policy::kLruFloor && LargestFloor(trace, slots, floor) < floor) {
    throw Error(ErrorCode::kUsage,
                fmt::format("a floor of {} leaves no room in {} slots", floor, slots));
  }
  ExpertSlots cache(ids, slots, Make(policy, ids, accesses, floor));
  CacheResult result;
  result.accesses = accesses.size();
  std::vector<ExpertId> missing;
  size_t at = 0;
  while (at < accesses.size()) {
    for (const RoutingTrace::Layer& layer : trace.layers) {
      const std::span<const ExpertId> step = accesses.subspan(at, layer.top_k);
      at += layer.top_k;
      missing.clear();
      for (const ExpertId id : step) {
        if (!cache.Find(id)) missing.push_back(id);
      }
      result.hits += step.size() - missing.size();
      for (const ExpertId id : missing) {
        if (!cache.Take(id)) throw Error(ErrorCode::kInternal, "no expert can be evicted");
      }
      for (const ExpertId id : step) cache.Release(id);
    }
  }
  return result;
}

uint32_t LargestFloor(const RoutingTrace& trace, uint32_t slots, uint32_t wanted) {
  const std::vector<uint32_t> experts = trace.ExpertsPerLayer();
  const auto layers = static_cast<uint32_t>(
      std::count_if(experts.begin(), experts.end(), [](uint32_t n) { return n > 0; }));
  const uint32_t need = trace.most_at_once();
  if (layers == 0 || slots < need) return 0;
  return std::min(wanted, (slots - need) / layers);
}

}  // namespace moewe::experts
