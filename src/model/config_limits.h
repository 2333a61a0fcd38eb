// The largest values that a config may hold: far above any model, low enough that products fit 64
// bits.
#ifndef MOEWE_MODEL_CONFIG_LIMITS_H_
#define MOEWE_MODEL_CONFIG_LIMITS_H_

#include <cstdint>
#include <string>

#include "formats/cmf/limits.h"
#include "model/config.h"

namespace moewe::model {

inline constexpr uint32_t kMaxLayers = 4096;
using formats::cmf::kMaxLoops;
inline constexpr uint32_t kMaxHidden = 1u << 20;
inline constexpr uint32_t kMaxIntermediate = 1u << 24;
inline constexpr uint32_t kMaxVocab = 1u << 26;
inline constexpr uint32_t kMaxHeads = 1u << 14;
inline constexpr uint32_t kMaxHeadDim = 1u << 14;
inline constexpr uint32_t kMaxRouterGroups = 256;
inline constexpr uint32_t kMaxConvTaps = 16;
inline constexpr uint32_t kMaxExperts = 1u << 16;
inline constexpr uint32_t kMaxContext = 1u << 30;
inline constexpr double kMaxMultiplier = 1e9;

// Gives each layer the rope of its kind (with a sliding window: `local`, else `global`); ropes that
// no layer uses are not kept.
void AssignRopes(const Rope& global, const Rope& local, ModelConfig* config);

}  // namespace moewe::model

#endif  // MOEWE_MODEL_CONFIG_LIMITS_H_
