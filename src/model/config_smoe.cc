#include "model/config_smoe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "model/config_limits.h"
#include "model/rope_config.h"

namespace moewe::model {
namespace {

using formats::smoe::Geometry;

Rope PlainRope(double theta, uint32_t head_dim) {
  Rope rope;
  rope.theta = theta;
  rope.rotary_dim = head_dim;
  FinishRope(&rope);
  return rope;
}

// The config of a model whose math the arch block holds.
ModelConfig FromGeometry(const Geometry& geometry) {
  const formats::smoe::ArchBlock& arch = geometry.arch;
  ModelConfig config;
  config.arch_name = arch.model_type.empty() ? "smoe_v1" : arch.model_type;
  config.hidden_size = geometry.hidden_size;
  config.intermediate_size = arch.dense_ffn_dim != 0 ? arch.dense_ffn_dim : arch.moe_ffn_dim;
  config.num_layers = arch.num_hidden_layers;
  config.vocab_size = geometry.vocab_size;
  config.max_position_embeddings = kUnknownMaxPositions;
  config.rms_norm_eps = arch.rms_norm_eps;
  config.tie_word_embeddings = geometry.tied;
  config.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(arch.head_dim)));
  config.has_moe = true;
  config.moe.num_experts = geometry.num_experts;
  config.moe.top_k = arch.moe_top_k;
  config.moe.intermediate_size = arch.moe_ffn_dim;
  config.moe.shared_intermediate_size = arch.shared_expert_ffn_dim;
  config.moe.norm_topk_prob = arch.Has(formats::smoe::kNormTopk);
  LayerConfig layer;
  layer.num_heads = arch.num_heads;
  layer.num_kv_heads = arch.num_kv_heads;
  layer.head_dim = arch.head_dim;
  config.layers.assign(arch.num_hidden_layers, layer);
  const Rope rope = PlainRope(arch.rope_theta, arch.head_dim);
  AssignRopes(rope, rope, &config);
  return config;
}

void CheckLimits(const Geometry& geometry, const std::string& file) {
  const formats::smoe::ArchBlock& arch = geometry.arch;
  const auto require = [&](uint64_t value, uint64_t limit, const char* field) {
    if (value <= limit) return;
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{} is more than moewe runs, {}", value, limit), {file, field});
  };
  require(geometry.hidden_size, kMaxHidden, "header.d_model");
  require(geometry.vocab_size, kMaxVocab, "header.vocab_size");
  require(arch.num_heads, kMaxHeads, "arch.num_heads");
  require(geometry.num_experts, kMaxExperts, "header.max_experts_per_layer");
  require(arch.num_hidden_layers, kMaxLayers, "arch.num_hidden_layers");
  require(arch.moe_ffn_dim, kMaxIntermediate, "descriptors.rows");
  require(arch.shared_expert_ffn_dim, kMaxIntermediate, "arch.shared_expert_ffn_dim");
}

// `arch` and the arch block were written together.
void CheckAgainst(const Geometry& geometry, const ModelConfig& config, const std::string& file) {
  const auto require = [&](const char* name, auto said, auto expected) {
    if (said == expected) return;
    throw Error(ErrorCode::kParse,
                fmt::format("{} is {}, the vault and its tensors say {}", name, said, expected),
                {file, std::string("header.__metadata__.") + formats::smoe::kArchName});
  };
  const formats::smoe::ArchBlock& arch = geometry.arch;
  const LayerConfig& layer = config.layers.front();
  require("hidden_size", config.hidden_size, geometry.hidden_size);
  require("vocab_size", config.vocab_size, geometry.vocab_size);
  require("num_layers", config.num_layers, arch.num_hidden_layers);
  require("num_attention_heads", layer.num_heads, arch.num_heads);
  require("num_kv_heads", layer.num_kv_heads, arch.num_kv_heads);
  require("head_dim", layer.head_dim, arch.head_dim);
  require("moe", config.has_moe, true);
  require("moe.num_experts", config.moe.num_experts, geometry.num_experts);
  require("moe.top_k", config.moe.top_k, arch.moe_top_k);
  require("moe.norm_topk_prob", config.moe.norm_topk_prob, arch.Has(formats::smoe::kNormTopk));
  require("rms_norm_eps", config.rms_norm_eps, arch.rms_norm_eps);
  require("rope_theta", static_cast<float>(config.ropes.front().theta), arch.rope_theta);
}

}  // namespace

ModelConfig ConfigFromSmoe(const formats::SmoeVault& vault) {
  const Geometry& geometry = vault.geometry();
  const std::string& file = vault.files().front();
  CheckLimits(geometry, file);
  ModelConfig config;
  if (geometry.arch_json.empty()) {
    config = FromGeometry(geometry);
  } else {
    const std::string& scout = vault.files()[1];
    const Bytes text(reinterpret_cast<const uint8_t*>(geometry.arch_json.data()),
                     geometry.arch_json.size());
    const Json arch = ParseJson(text, scout, formats::smoe::kArchName);
    config = ConfigFromCmfHeader({{"arch", arch}}, scout);
    CheckAgainst(geometry, config, scout);
    config.tie_word_embeddings = geometry.tied;
  }
  std::vector<std::string> warnings = vault.Warnings();
  config.warnings.list.insert(config.warnings.list.begin(), warnings.begin(), warnings.end());
  return config;
}

bool ArchBlockHolds(const ModelConfig& config, std::string* reason) {
  const LayerConfig& first = config.layers.front();
  const Rope plain = PlainRope(config.ropes.front().theta, first.head_dim);
  const MoeConfig& moe = config.moe;
  const auto cannot = [&](bool condition, const char* what) {
    if (condition && reason->empty()) *reason = what;
  };
  reason->clear();
  cannot(config.has_mla(), "latent attention");
  cannot(IsRecurrent(config.recurrent_kind()), "recurrent layers");
  cannot(config.num_loops != 1, "looped layers");
  cannot(config.mtp_layers != 0, "a prediction head");
  cannot(config.norm_weight_offset != 0.0f, "norms of 1 + w");
  cannot(config.gate_function != kernels::GateFunction::kSilu, "a gate other than SiLU");
  cannot(config.embed_multiplier != 1.0f || config.residual_multiplier != 1.0f ||
             config.logit_multiplier != 1.0f,
         "multipliers");
  cannot(config.attn_soft_cap != 0.0f || config.final_soft_cap != 0.0f, "soft caps");
  cannot(config.attention_scale !=
             static_cast<float>(1.0 / std::sqrt(static_cast<double>(first.head_dim))),
         "an attention scale of its own");
  cannot(std::any_of(config.layers.begin(), config.layers.end(),
                     [](const LayerConfig& layer) { return layer.sliding_window != 0; }),
         "sliding windows");
  cannot(std::any_of(config.layers.begin(), config.layers.end(),
                     [&](const LayerConfig& layer) { return !(layer == first); }),
         "layers with different heads");
  cannot(config.ropes.size() > 1, "two kinds of rotary embedding");
  cannot(!(config.ropes.front() == plain), "rotary scaling or partial rotation");
  cannot(static_cast<double>(static_cast<float>(plain.theta)) != plain.theta,
         "a rope_theta that f32 rounds");
  cannot(moe.router_sigmoid, "sigmoid routing");
  cannot(moe.groups != 1, "groups of experts");
  cannot(moe.routed_scaling_factor != 1.0f, "a routed scaling factor");
  cannot(moe.norm_epsilon != 0.0f, "an epsilon of the router's sum");
  return reason->empty();
}

}  // namespace moewe::model
