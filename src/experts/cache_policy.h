// Which expert gives up its place when a cache of experts is full.
//
// Experts have dense ids: those of layer 0 first, then those of layer 1, ... (ExpertIds). A policy
// knows the resident experts that nobody holds at the moment and names the one to go; it neither
// stores weights nor counts places. All operations take O(log experts), and none allocates for an
// expert that has been resident before.
#ifndef MOEWE_EXPERTS_CACHE_POLICY_H_
#define MOEWE_EXPERTS_CACHE_POLICY_H_

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

namespace moewe::experts {

using ExpertId = uint32_t;

// (layer, expert) <-> ExpertId.
class ExpertIds {
 public:
  // Experts of each layer; 0 for a layer without any.
  explicit ExpertIds(std::span<const uint32_t> experts_per_layer);

  uint32_t layers() const { return static_cast<uint32_t>(first_.size() - 1); }
  uint32_t size() const { return first_.back(); }
  uint32_t experts(uint32_t layer) const { return first_[layer + 1] - first_[layer]; }
  ExpertId id(uint32_t layer, uint32_t expert) const { return first_[layer] + expert; }
  uint32_t layer(ExpertId id) const { return layer_of_[id]; }

 private:
  std::vector<ExpertId> first_;     // of each layer, and the total
  std::vector<uint32_t> layer_of_;  // by id
};

// One thread at a time.
class CachePolicy {
 public:
  // A layer never falls below `floor` resident experts by an eviction; 0 = no such rule. `ids` must
  // outlive the policy.
  CachePolicy(const ExpertIds& ids, uint32_t floor);
  virtual ~CachePolicy() = default;
  CachePolicy(const CachePolicy&) = delete;
  CachePolicy& operator=(const CachePolicy&) = delete;

  // `id` is asked for, resident or not; once for each access, before anything else about it.
  void Use(ExpertId id);

  void Insert(ExpertId id);  // becomes resident, and may be evicted
  void Remove(ExpertId id);  // is resident no longer; also of a held one
  void Hold(ExpertId id);    // in use: not to be evicted until Release
  void Release(ExpertId id);

  // From now to its next use `id` goes before every expert that was used; of several such experts
  // the one with the lowest `order` first. All begin like that, with order 0.
  void PutBehindUsed(ExpertId id, uint64_t order);

  // The resident, unheld expert to evict first; nothing if there is none that may go.
  std::optional<ExpertId> Victim() const;
  // The same as if there were no floor. Takes O(layers).
  std::optional<ExpertId> VictimBelowFloor() const;

  uint32_t resident(uint32_t layer) const { return layers_[layer].resident; }

 protected:
  // What orders evictions: the lowest goes first; above 0. Called for the expert that Use just
  // named.
  virtual uint64_t RankAfterUse(ExpertId id, uint64_t time) = 0;

 private:
  struct Key {
    uint64_t rank = 0;
    uint64_t last_use = 0;
    ExpertId id = 0;
    auto operator<=>(const Key&) const = default;
  };
  // A set's node that is moved in and out of it, so that it is allocated once.
  using Node = std::set<Key>::node_type;
  struct Layer {
    uint32_t resident = 0;
    std::set<Key> unheld;            // its resident experts that may go
    std::optional<Key> in_eligible;  // its entry there
    Node node;                       // while it has none
  };
  struct State {
    Key key;
    bool resident = false;
    uint32_t holds = 0;
    Node node;  // while it is not in `unheld`
  };

  Layer& LayerOf(ExpertId id) { return layers_[ids_.layer(id)]; }
  static void List(State* state, Layer* layer);
  static bool Unlist(State* state, Layer* layer);  // whether it was listed
  void SetKey(ExpertId id, uint64_t rank, uint64_t last_use);
  void Renew(Layer* layer);

  const ExpertIds& ids_;
  const uint32_t floor_;
  uint64_t time_ = 0;  // accesses so far
  std::vector<State> states_;
  std::vector<Layer> layers_;
  std::set<Key> eligible_;  // the first of every layer above its floor
};

// The one that was not used for the longest time.
std::unique_ptr<CachePolicy> MakeLru(const ExpertIds& ids, uint32_t floor = 0);

// The one that was used least often since the start, resident or not; of several the least recent.
std::unique_ptr<CachePolicy> MakeLfu(const ExpertIds& ids, uint32_t floor = 0);

// The one whose next use is farthest away (Belady 1966): what no policy without foresight can beat.
// `accesses`: every Use to come, in order; must outlive the call only.
std::unique_ptr<CachePolicy> MakeBelady(const ExpertIds& ids, std::span<const ExpertId> accesses);

}  // namespace moewe::experts

#endif  // MOEWE_EXPERTS_CACHE_POLICY_H_
