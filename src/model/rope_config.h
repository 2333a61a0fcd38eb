// Rotary frequencies: from the spellings of Hugging Face configs and CMF headers to numbers.
#ifndef MOEWE_MODEL_ROPE_CONFIG_H_
#define MOEWE_MODEL_ROPE_CONFIG_H_

#include <cstdint>
#include <string_view>

#include "model/config.h"
#include "model/json_keys.h"

namespace moewe::model {

inline constexpr uint32_t kMaxRopePositions = 1u << 30;
inline constexpr double kMaxRopeTheta = 1e15;
inline constexpr double kMinRopeFactor = 1e-6;
inline constexpr double kMaxRopeFactor = 1e9;

// Channels of a head that rotate, truncated as the reference does; `key` is named if they can't be
// paired.
uint32_t RotaryDim(const JsonKeys& keys, std::string_view key, double partial_factor,
                   uint32_t head_dim);

// What a family gives a rope whose config leaves a key out.
struct RopeDefaults {
  double theta = 10000.0;
  double partial_rotary_factor = 1.0;
  uint32_t head_dim = 0;
  uint32_t max_positions = 0;  // max_position_embeddings
  bool interleaved = false;
  bool sections = false;  // there may be mrope_section: text has one position in all sections
  bool yarn_means_longrope = false;  // Phi-3's early files call longrope "su" or "yarn"
  std::optional<uint32_t> original_max_positions;  // the family's own key, before the rope's
};

// `scaling`: a `rope_parameters` or `rope_scaling` object (rope_type or type, rope_theta, factor,
// ...), or nothing for plain rope. Types default, linear, llama3, yarn, longrope; others are
// kUnsupported.
Rope RopeFromHuggingFace(const std::optional<JsonKeys>& scaling, const RopeDefaults& defaults);

// The rope of a CMF header's full-attention layers: rope_theta, partial_rotary_factor, yarn,
// rope_freq_factors and moewe.rope.
Rope GlobalRopeFromCmf(const JsonKeys& arch, uint32_t head_dim);
// The rope of its sliding layers: the global one unless rope_local_base_freq (or
// local_partial_rotary_factor) is there; then that, and moewe.local_rope.
Rope LocalRopeFromCmf(const JsonKeys& arch, uint32_t head_dim, const Rope& global);

// Writes what the two functions above read. `local` null: the sliding layers share `global`, or
// there are none.
void WriteRopesToCmf(const Rope& global, const Rope* local, uint32_t head_dim,
                     nlohmann::ordered_json* arch, nlohmann::ordered_json* moewe);

// Computes inv_freq and inv_freq_long from the description.
void FinishRope(Rope* rope);

}  // namespace moewe::model

#endif  // MOEWE_MODEL_ROPE_CONFIG_H_
