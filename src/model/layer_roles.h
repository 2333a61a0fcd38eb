// The tensors that a layer can have, by their canonical names behind "model.layers.N." (CMF section
// 2.2). The one list of them: names are mapped to it, weights are bound from it.
#ifndef MOEWE_MODEL_LAYER_ROLES_H_
#define MOEWE_MODEL_LAYER_ROLES_H_

#include <algorithm>
#include <array>
#include <string_view>

#include "model/name_parts.h"

namespace moewe::model::roles {

// Of a prediction head; its layer's tensors are behind "layers.0.".
inline constexpr std::string_view kMtp = "model.mtp.";
inline constexpr std::string_view kMtpJoin = "eh_proj.weight";
inline constexpr std::string_view kMtpEmbedNorm = "enorm.weight";
inline constexpr std::string_view kMtpHiddenNorm = "hnorm.weight";
inline constexpr std::string_view kMtpNorm = "norm.weight";

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
// Gated DeltaNet; both fused projections, or the four others.
inline constexpr std::string_view kLinearQkvz = "linear_attn.in_proj_qkvz.weight";
inline constexpr std::string_view kLinearBa = "linear_attn.in_proj_ba.weight";
inline constexpr std::string_view kLinearQkv = "linear_attn.in_proj_qkv.weight";
inline constexpr std::string_view kLinearGate = "linear_attn.in_proj_z.weight";
inline constexpr std::string_view kLinearBeta = "linear_attn.in_proj_b.weight";
inline constexpr std::string_view kLinearDecay = "linear_attn.in_proj_a.weight";
inline constexpr std::string_view kLinearConv = "linear_attn.conv1d.weight";
inline constexpr std::string_view kLinearRate = "linear_attn.A_log";
inline constexpr std::string_view kLinearDecayBias = "linear_attn.dt_bias";
inline constexpr std::string_view kLinearNorm = "linear_attn.norm.weight";
inline constexpr std::string_view kLinearOut = "linear_attn.out_proj.weight";
// Kimi Delta Attention; gate and decay by one matrix or by two.
inline constexpr std::string_view kKdaQ = "kda_attn.q_proj.weight";
inline constexpr std::string_view kKdaK = "kda_attn.k_proj.weight";
inline constexpr std::string_view kKdaV = "kda_attn.v_proj.weight";
inline constexpr std::string_view kKdaQConv = "kda_attn.q_conv1d.weight";
inline constexpr std::string_view kKdaKConv = "kda_attn.k_conv1d.weight";
inline constexpr std::string_view kKdaVConv = "kda_attn.v_conv1d.weight";
inline constexpr std::string_view kKdaGate = "kda_attn.g_proj.weight";
inline constexpr std::string_view kKdaGateDown = "kda_attn.g_a_proj.weight";
inline constexpr std::string_view kKdaGateUp = "kda_attn.g_b_proj.weight";
inline constexpr std::string_view kKdaDecay = "kda_attn.f_proj.weight";
inline constexpr std::string_view kKdaDecayDown = "kda_attn.f_a_proj.weight";
inline constexpr std::string_view kKdaDecayUp = "kda_attn.f_b_proj.weight";
inline constexpr std::string_view kKdaBeta = "kda_attn.b_proj.weight";
inline constexpr std::string_view kKdaRate = "kda_attn.A_log";
inline constexpr std::string_view kKdaDecayBias = "kda_attn.dt_bias";
inline constexpr std::string_view kKdaNorm = "kda_attn.o_norm.weight";
inline constexpr std::string_view kKdaOut = "kda_attn.o_proj.weight";
inline constexpr std::string_view kShortConv = "short_conv.conv.weight";
inline constexpr std::string_view kShortConvIn = "short_conv.in_proj.weight";
inline constexpr std::string_view kShortConvOut = "short_conv.out_proj.weight";
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

inline constexpr std::array kSingle = {kInputNorm,
                                       kPostAttentionNorm,
                                       kPreFfnNorm,
                                       kPostFfnNorm,
                                       kQ,
                                       kK,
                                       kV,
                                       kO,
                                       kQBias,
                                       kKBias,
                                       kVBias,
                                       kOBias,
                                       kQNorm,
                                       kKNorm,
                                       kOutputGate,
                                       kSinks,
                                       kQDown,
                                       kQDownNorm,
                                       kQUp,
                                       kKvDown,
                                       kKvDownNorm,
                                       kKvUp,
                                       kLinearQkvz,
                                       kLinearBa,
                                       kLinearQkv,
                                       kLinearGate,
                                       kLinearBeta,
                                       kLinearDecay,
                                       kLinearConv,
                                       kLinearRate,
                                       kLinearDecayBias,
                                       kLinearNorm,
                                       kLinearOut,
                                       kKdaQ,
                                       kKdaK,
                                       kKdaV,
                                       kKdaQConv,
                                       kKdaKConv,
                                       kKdaVConv,
                                       kKdaGate,
                                       kKdaGateDown,
                                       kKdaGateUp,
                                       kKdaDecay,
                                       kKdaDecayDown,
                                       kKdaDecayUp,
                                       kKdaBeta,
                                       kKdaRate,
                                       kKdaDecayBias,
                                       kKdaNorm,
                                       kKdaOut,
                                       kShortConv,
                                       kShortConvIn,
                                       kShortConvOut,
                                       kRouter,
                                       kRouterBias,
                                       kExpertBias,
                                       kSharedExpertGate};

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
