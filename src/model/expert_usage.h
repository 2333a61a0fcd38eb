// How often experts were used before, as it is kept beside a model, and what hit rate a cache has
// with it.
#ifndef MOEWE_MODEL_EXPERT_USAGE_H_
#define MOEWE_MODEL_EXPERT_USAGE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "formats/checkpoint.h"

namespace moewe::model {

// experts::FrequencyKey of a checkpoint, of which so many experts a layer are streamed.
uint64_t UsageKey(const formats::Checkpoint& checkpoint,
                  std::span<const uint32_t> experts_per_layer);

// The share of uses that find their expert in a cache of so many slots that evicts the least
// recently used one, if uses are independent and as frequent as `counts` (Che, Tung and Wang 2002,
// "Hierarchical Web caching systems": an expert is there if it was used within a time that makes
// the expected number of those exactly `slots`). slots / experts if all counts are equal or zero.
double ExpectedHitRate(std::span<const uint64_t> counts, uint64_t slots);

}  // namespace moewe::model

#endif  // MOEWE_MODEL_EXPERT_USAGE_H_
