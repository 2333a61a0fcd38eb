#include "experts/cache_policy.h"

#include <utility>

namespace moewe::experts {
namespace {

class Lru : public CachePolicy {
 public:
  using CachePolicy::CachePolicy;

 protected:
  uint64_t RankAfterUse(ExpertId /*id*/, uint64_t time) override { return time + 1; }
};

class Lfu : public CachePolicy {
 public:
  Lfu(const ExpertIds& ids, uint32_t floor) : CachePolicy(ids, floor), uses_(ids.size(), 0) {}

 protected:
  uint64_t RankAfterUse(ExpertId id, uint64_t /*time*/) override { return ++uses_[id]; }

 private:
  std::vector<uint64_t> uses_;
};

class Belady : public CachePolicy {
 public:
  Belady(const ExpertIds& ids, std::span<const ExpertId> accesses)
      : CachePolicy(ids, 0), next_use_(accesses.size()) {
    std::vector<uint64_t> next(ids.size(), UINT64_MAX);  // of each expert; none = never
    for (size_t i = accesses.size(); i-- > 0;) next_use_[i] = std::exchange(next[accesses[i]], i);
  }

 protected:
  uint64_t RankAfterUse(ExpertId /*id*/, uint64_t time) override {
    return UINT64_MAX - next_use_[static_cast<size_t>(time)];
  }

 private:
  std::vector<uint64_t> next_use_;  // of the expert of each access
};

}  // namespace

ExpertIds::ExpertIds(std::span<const uint32_t> experts_per_layer) {
  first_.push_back(0);
  for (uint32_t layer = 0; layer < experts_per_layer.size(); ++layer) {
    first_.push_back(first_.back() + experts_per_layer[layer]);
    layer_of_.resize(first_.back(), layer);
  }
}

CachePolicy::CachePolicy(const ExpertIds& ids, uint32_t floor)
    : ids_(ids), floor_(floor), states_(ids.size()), layers_(ids.layers()) {
  for (ExpertId id = 0; id < ids.size(); ++id) states_[id].key.id = id;
}

void CachePolicy::List(State* state, Layer* layer) {
  if (state->node.empty()) {
    layer->unheld.insert(state->key);
    return;
  }
  state->node.value() = state->key;
  layer->unheld.insert(std::move(state->node));
}

bool CachePolicy::Unlist(State* state, Layer* layer) {
  Node node = layer->unheld.extract(state->key);
  if (node.empty()) return false;
  state->node = std::move(node);
  return true;
}

void CachePolicy::SetKey(ExpertId id, uint64_t rank, uint64_t last_use) {
  State& state = states_[id];
  Layer& layer = LayerOf(id);
  const bool listed = Unlist(&state, &layer);
  state.key.rank = rank;
  state.key.last_use = last_use;
  if (!listed) return;
  List(&state, &layer);
  Renew(&layer);
}

void CachePolicy::Use(ExpertId id) {
  const uint64_t time = time_++;
  SetKey(id, RankAfterUse(id, time), time);
}

void CachePolicy::PutBehindUsed(ExpertId id, uint64_t order) { SetKey(id, 0, order); }

void CachePolicy::Insert(ExpertId id) {
  State& state = states_[id];
  if (std::exchange(state.resident, true)) return;
  Layer& layer = LayerOf(id);
  ++layer.resident;
  if (state.holds == 0) List(&state, &layer);
  Renew(&layer);
}

void CachePolicy::Remove(ExpertId id) {
  State& state = states_[id];
  if (!std::exchange(state.resident, false)) return;
  Layer& layer = LayerOf(id);
  --layer.resident;
  Unlist(&state, &layer);
  Renew(&layer);
}

void CachePolicy::Hold(ExpertId id) {
  State& state = states_[id];
  if (state.holds++ > 0 || !state.resident) return;
  Layer& layer = LayerOf(id);
  Unlist(&state, &layer);
  Renew(&layer);
}

void CachePolicy::Release(ExpertId id) {
  State& state = states_[id];
  if (state.holds == 0) return;
  --state.holds;
  if (state.holds > 0 || !state.resident) return;
  Layer& layer = LayerOf(id);
  List(&state, &layer);
  Renew(&layer);
}

std::optional<ExpertId> CachePolicy::Victim() const {
  if (eligible_.empty()) return std::nullopt;
  return eligible_.begin()->id;
}

std::optional<ExpertId> CachePolicy::VictimBelowFloor() const {
  std::optional<Key> first;
  for (const Layer& layer : layers_) {
    if (layer.unheld.empty()) continue;
    const Key& key = *layer.unheld.begin();
    if (!first || key < *first) first = key;
  }
  if (!first) return std::nullopt;
  return first->id;
}

void CachePolicy::Renew(Layer* layer) {
  std::optional<Key> first;
  if (layer->resident > floor_ && !layer->unheld.empty()) first = *layer->unheld.begin();
  if (first == layer->in_eligible) return;
  if (layer->in_eligible) layer->node = eligible_.extract(*layer->in_eligible);
  if (first && !layer->node.empty()) {
    layer->node.value() = *first;
    eligible_.insert(std::move(layer->node));
  } else if (first) {
    eligible_.insert(*first);
  }
  layer->in_eligible = first;
}

std::unique_ptr<CachePolicy> MakeLru(const ExpertIds& ids, uint32_t floor) {
  return std::make_unique<Lru>(ids, floor);
}

std::unique_ptr<CachePolicy> MakeLfu(const ExpertIds& ids, uint32_t floor) {
  return std::make_unique<Lfu>(ids, floor);
}

std::unique_ptr<CachePolicy> MakeBelady(const ExpertIds& ids, std::span<const ExpertId> accesses) {
  return std::make_unique<Belady>(ids, accesses);
}

}  // namespace moewe::experts
