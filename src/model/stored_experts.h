// Where a model's routed experts lie in its files.
#ifndef MOEWE_MODEL_STORED_EXPERTS_H_
#define MOEWE_MODEL_STORED_EXPERTS_H_

#include <cstdint>
#include <vector>

#include "experts/expert_store.h"
#include "model/config.h"
#include "model/weights.h"

namespace moewe::model {

struct StoredExperts {
  // By layer: the experts whose three matrices are in files, and which ones of the layer they are,
  // ascending. The others (blended skills, parts that were put together) stay in memory.
  std::vector<std::vector<experts::StoredExpert>> layers;
  std::vector<std::vector<uint32_t>> experts;
  uint64_t count = 0;       // in all layers
  uint64_t held_bytes = 0;  // weights of those that stay in memory
  uint64_t slot_bytes =
      0;  // of memory that one takes while it is there, with all that belongs to it
  uint64_t least_slots = 0;  // that a store needs to be of use

  // What a store with so many slots is given as its arena.
  uint64_t ArenaBytes(uint64_t slots) const { return slots * read_bytes; }
  uint64_t read_bytes = 0;  // of a slot, what is read into
};

// Bytes of streamed experts that a token goes through, at the mean size of its layers' experts.
double ExpertBytesPerToken(const StoredExperts& stored, const ModelConfig& config);

// The most common read: of the first expert there is; 0 without any.
uint64_t CommonReadBytes(const StoredExperts& stored);

// Looks at names, shapes and places only.
StoredExperts FindStoredExperts(const Weights& weights, const ModelConfig& config);

}  // namespace moewe::model

#endif  // MOEWE_MODEL_STORED_EXPERTS_H_
