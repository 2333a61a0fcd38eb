// The rotary fields of a CMF header's arch: section 2's names first, moewe.rope and
// moewe.local_rope for the rest.
#include <fmt/format.h>

#include <cmath>

#include "model/rope_config.h"

namespace moewe::model {
namespace {

using Json = nlohmann::ordered_json;

// The factor that RotaryDim() takes to `dim`, also when it is computed in f32.
double PartialFactor(uint32_t dim, uint32_t head_dim) {
  if (head_dim == 0) return 1.0;
  double factor = static_cast<double>(dim) / head_dim;
  while (static_cast<uint32_t>(factor * head_dim) < dim) factor = std::nextafter(factor, 2.0);
  return factor;
}

std::optional<YarnScaling> ReadYarn(const JsonKeys& object, float* attention_factor) {
  const std::optional<JsonKeys> keys = object.Object("yarn");
  if (!keys) return {};
  YarnScaling yarn;
  yarn.factor = keys->Number("factor", kMinRopeFactor, kMaxRopeFactor);
  yarn.original_max_positions =
      keys->Uint("original_max_position_embeddings", 1, kMaxRopePositions);
  yarn.beta_fast = keys->Number("beta_fast", kMinRopeFactor, kMaxRopeFactor, 32.0);
  yarn.beta_slow = keys->Number("beta_slow", kMinRopeFactor, kMaxRopeFactor, 1.0);
  *attention_factor =
      static_cast<float>(keys->Number("attention_factor", 0.0, kMaxRopeFactor, 1.0));
  return yarn;
}

Json YarnToJson(const YarnScaling& yarn, float attention_factor) {
  return {{"factor", yarn.factor},
          {"original_max_position_embeddings", yarn.original_max_positions},
          {"beta_fast", yarn.beta_fast},
          {"beta_slow", yarn.beta_slow},
          {"attention_factor", ShortestDecimal(attention_factor)}};
}

// What only moewe's own block can say about a rope.
void ReadExtras(const JsonKeys& arch, std::string_view key, Rope* rope) {
  const std::optional<JsonKeys> block = arch.Object("moewe");
  const std::optional<JsonKeys> keys = block ? block->Object(key) : std::nullopt;
  if (!keys) return;
  rope->interleaved = keys->Bool("interleaved", false);
  rope->attention_factor = static_cast<float>(keys->Number(
      "attention_factor", 0.0, kMaxRopeFactor, static_cast<double>(rope->attention_factor)));
  if (keys->Has("long_freq_factors")) {
    rope->freq_factors_long =
        keys->Numbers("long_freq_factors", rope->rotary_dim / 2, kMinRopeFactor, kMaxRopeFactor);
    rope->long_from = keys->Uint("long_from", 1, kMaxRopePositions);
  }
  // The global rope has names of its own for these two.
  if (key == "local_rope") {
    if (keys->Has("freq_factors")) {
      rope->freq_factors =
          keys->Numbers("freq_factors", rope->rotary_dim / 2, kMinRopeFactor, kMaxRopeFactor);
    }
    if (keys->Has("yarn")) rope->yarn = ReadYarn(*keys, &rope->attention_factor);
  }
  if (rope->yarn) rope->yarn->truncate = keys->Bool("yarn_truncate", true);
}

Json ExtrasToJson(const Rope& rope) {
  Json json = Json::object();
  if (rope.interleaved) json["interleaved"] = true;
  if (rope.attention_factor != 1.0f && !rope.yarn) {
    json["attention_factor"] = ShortestDecimal(rope.attention_factor);
  }
  if (rope.yarn && !rope.yarn->truncate) json["yarn_truncate"] = false;
  if (rope.long_from != 0) {
    json["long_freq_factors"] = rope.freq_factors_long;
    json["long_from"] = rope.long_from;
  }
  return json;
}

}  // namespace

Rope GlobalRopeFromCmf(const JsonKeys& arch, uint32_t head_dim) {
  Rope rope;
  rope.theta = arch.Number("rope_theta", 1.0, kMaxRopeTheta, 10000.0);
  rope.rotary_dim = RotaryDim(arch, "partial_rotary_factor",
                              arch.Number("partial_rotary_factor", 0.0, 1.0, 1.0), head_dim);
  rope.yarn = ReadYarn(arch, &rope.attention_factor);
  if (arch.Has("rope_freq_factors")) {
    rope.freq_factors =
        arch.Numbers("rope_freq_factors", rope.rotary_dim / 2, kMinRopeFactor, kMaxRopeFactor);
  }
  ReadExtras(arch, "rope", &rope);
  FinishRope(&rope);
  return rope;
}

Rope LocalRopeFromCmf(const JsonKeys& arch, uint32_t head_dim, const Rope& global) {
  if (!arch.Has("rope_local_base_freq") && !arch.Has("local_partial_rotary_factor")) return global;
  Rope rope;
  rope.theta = arch.Number("rope_local_base_freq", 1.0, kMaxRopeTheta, global.theta);
  const double partial = arch.Number("partial_rotary_factor", 0.0, 1.0, 1.0);
  rope.rotary_dim =
      RotaryDim(arch, "local_partial_rotary_factor",
                arch.Number("local_partial_rotary_factor", 0.0, 1.0, partial), head_dim);
  ReadExtras(arch, "local_rope", &rope);
  FinishRope(&rope);
  return rope;
}

void WriteRopesToCmf(const Rope& global, const Rope* local, uint32_t head_dim, Json* arch,
                     Json* moewe) {
  (*arch)["rope_theta"] = global.theta;
  (*arch)["partial_rotary_factor"] = PartialFactor(global.rotary_dim, head_dim);
  if (global.yarn) (*arch)["yarn"] = YarnToJson(*global.yarn, global.attention_factor);
  if (!global.freq_factors.empty()) (*arch)["rope_freq_factors"] = global.freq_factors;
  if (Json extras = ExtrasToJson(global); !extras.empty()) (*moewe)["rope"] = std::move(extras);
  if (local == nullptr) return;
  (*arch)["rope_local_base_freq"] = local->theta;
  (*arch)["local_partial_rotary_factor"] = PartialFactor(local->rotary_dim, head_dim);
  Json extras = ExtrasToJson(*local);
  if (!local->freq_factors.empty()) extras["freq_factors"] = local->freq_factors;
  if (local->yarn) extras["yarn"] = YarnToJson(*local->yarn, local->attention_factor);
  if (!extras.empty()) (*moewe)["local_rope"] = std::move(extras);
}

}  // namespace moewe::model
