// The tensors that a layer can have, by their canonical names behind "model.layers.N." (CMF section
// 2.2). The one list of them: names are mapped to it, weights are bound from it.
#ifndef MOEWE_MODEL_LAYER_ROLES_H_
#define MOEWE_MODEL_LAYER_ROLES_H_

#include <algorithm>
#include <array>
#include <string_view>

#include "model/name_parts.h"

namespace moewe::model::roles {

inline constexpr std::string_view kInputNorm = "input_layernorm.weight";
inline constexpr std::string_view kPostAttentionNorm = "post_attention_layernorm.weight";
inline constexpr std::string_view kPreFfnNorm = "pre_feedforward_layernorm.weight";
inline constexpr std::string_view kPostFfnNorm = "post_feedforward_layernorm.weight";
inline constexpr std::string_view kQ = "self_attn.q_proj.weight";
inline constexpr std::string_view kK = "self_attn.k_proj.weight";
inline constexpr std::string_view kV = "self_attn.v_proj.weight";
inline constexpr std::string_view kO = "self_attn.o_proj.weight";
inline constexpr std::string_view kQBias = "self_attn.q_proj.bias";
inline constexpr std::string_view kKBias = "self_attn.k_proj.bias";
inline constexpr std::string_view kVBias = "self_attn.v_proj.bias";
inline constexpr std::string_view kOBias = "self_attn.o_proj.bias";
inline constexpr std::string_view kQNorm = "self_attn.q_norm.weight";
inline constexpr std::string_view kKNorm = "self_attn.k_norm.weight";
inline constexpr std::string_view kOutputGate = "self_attn.g_proj.weight";
inline constexpr std::string_view kSinks = "self_attn.sinks";
inline constexpr std::string_view kQDown = "self_attn.q_a_proj.weight";
inline constexpr std::string_view kQDownNorm = "self_attn.q_a_layernorm.weight";
inline constexpr std::string_view kQUp = "self_attn.q_b_proj.weight";
inline constexpr std::string_view kKvDown = "self_attn.kv_a_proj_with_mqa.weight";
inline constexpr std::string_view kKvDownNorm = "self_attn.kv_a_layernorm.weight";
inline constexpr std::string_view kKvUp = "self_attn.kv_b_proj.weight";
inline constexpr std::string_view kRouter = "mlp.gate.weight";
inline constexpr std::string_view kRouterBias = "mlp.gate.bias";
inline constexpr std::string_view kExpertBias = "mlp.expert_bias";
inline constexpr std::string_view kSharedExpertGate = "mlp.shared_expert_gate.weight";

// Before the three matrices of an FFN: a dense one, the shared expert, expert "{e}.".
inline constexpr std::string_view kFfn = "mlp.";
inline constexpr std::string_view kSharedExpert = "mlp.shared_expert.";
inline constexpr std::string_view kExperts = "mlp.experts.";
inline constexpr std::string_view kGate = "gate_proj.weight";
inline constexpr std::string_view kUp = "up_proj.weight";
inline constexpr std::string_view kDown = "down_proj.weight";
// Of an expert only.
inline constexpr std::string_view kGateBias = "gate_proj.bias";
inline constexpr std::string_view kUpBias = "up_proj.bias";
inline constexpr std::string_view kDownBias = "down_proj.bias";

inline constexpr std::array kSingle = {kInputNorm,  kPostAttentionNorm,
                                       kPreFfnNorm, kPostFfnNorm,
                                       kQ,          kK,
                                       kV,          kO,
                                       kQBias,      kKBias,
                                       kVBias,      kOBias,
                                       kQNorm,      kKNorm,
                                       kOutputGate, kSinks,
                                       kQDown,      kQDownNorm,
                                       kQUp,        kKvDown,
                                       kKvDownNorm, kKvUp,
                                       kRouter,     kRouterBias,
                                       kExpertBias, kSharedExpertGate};

// Whether a layer can have a tensor of this name.
inline bool IsLayerRole(std::string_view name) {
  const auto among = [](const auto& names, std::string_view one) {
    return std::find(names.begin(), names.end(), one) != names.end();
  };
  if (among(kSingle, name)) return true;
  if (Eat(&name, kExperts)) {
    if (!EatNumber(&name) || !Eat(&name, ".")) return false;
    if (among(std::array{kGateBias, kUpBias, kDownBias}, name)) return true;
  } else if (!Eat(&name, kSharedExpert) && !Eat(&name, kFfn)) {
    return false;
  }
  return among(std::array{kGate, kUp, kDown}, name);
}

}  // namespace moewe::model::roles

#endif  // MOEWE_MODEL_LAYER_ROLES_H_
