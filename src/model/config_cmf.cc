// The `arch` object of a CMF header: section 2 of the format, the fields of existing files, and
// moewe's own block. docs/formats/arch-moewe.md lists every name read and written here.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "model/config.h"
#include "model/config_limits.h"
#include "model/config_linear.h"
#include "model/config_mla.h"
#include "model/json_keys.h"
#include "model/rope_config.h"

namespace moewe::model {
namespace {

using Json = nlohmann::ordered_json;

// Everything else in `arch` is ignored with a warning: newer files may say more, but nothing that
// matters without a feature bit (section 1.1).
constexpr std::array<std::string_view, 50> kKnownKeys = {"arch_name",
                                                         "hidden_size",
                                                         "intermediate_size",
                                                         "num_layers",
                                                         "num_attention_heads",
                                                         "num_kv_heads",
                                                         "head_dim",
                                                         "vocab_size",
                                                         "layer_types",
                                                         "rms_norm_eps",
                                                         "norm_style",
                                                         "rope_theta",
                                                         "yarn",
                                                         "attention_heads_per_layer",
                                                         "sliding_window",
                                                         "sliding_window_pattern",
                                                         "rope_local_base_freq",
                                                         "partial_rotary_factor",
                                                         "local_partial_rotary_factor",
                                                         "tie_word_embeddings",
                                                         "max_position_embeddings",
                                                         "hidden_act",
                                                         "embed_multiplier",
                                                         "query_pre_attn_scalar",
                                                         "attn_logit_softcapping",
                                                         "final_logit_softcapping",
                                                         "logit_multiplier",
                                                         "rope_freq_factors",
                                                         "moe",
                                                         "mtp",
                                                         "moewe",
                                                         "mla",
                                                         "linear_core",
                                                         "linear_conv_kernel_dim",
                                                         "linear_num_key_heads",
                                                         "linear_num_value_heads",
                                                         "linear_key_head_dim",
                                                         "linear_value_head_dim",
                                                         "global_head_dim",
                                                         "num_global_kv_heads",
                                                         "global_partial_rotary_factor",
                                                         "attn_v_norm",
                                                         "kda_gate_lower_bound",
                                                         "num_loops",
                                                         "loop_final_norm",
                                                         "activation_situ_beta",
                                                         "activation_situ_linear_beta",
                                                         "g3n",
                                                         "head_clusters",
                                                         "v_head_dim"};

// Blocks and options that no code here runs; an absent, null, false or 0 value leaves them off.
constexpr std::array<std::string_view, 12> kUnsupportedKeys = {"g3n",
                                                               "head_clusters",
                                                               "global_head_dim",
                                                               "num_global_kv_heads",
                                                               "global_partial_rotary_factor",
                                                               "attn_v_norm",
                                                               "activation_situ_beta",
                                                               "kv_heads_per_layer",
                                                               "v_head_dim",
                                                               "no_rope_layers",
                                                               "attention_sink",
                                                               "qk_norm_after_rope"};

// A hidden_act of our own, which other readers refuse, and the object with its numbers.
constexpr const char* kClampedSwiglu = "clamped_swiglu";
constexpr const char* kMtpReadsNormed = "mtp_reads_normed";

bool IsOff(const Json& value) {
  return (value.is_boolean() && !value.get<bool>()) ||
         (value.is_number() && value.get<double>() == 0.0) ||
         ((value.is_array() || value.is_object()) && value.empty());
}

void RefuseUnsupported(const JsonKeys& arch) {
  for (std::string_view key : kUnsupportedKeys) {
    const Json* value = arch.Find(key);
    if (value == nullptr || IsOff(*value)) continue;
    // What repeats the plain geometry asks for nothing.
    if (key == "global_head_dim" && *value == arch.json().value("head_dim", Json())) continue;
    if (key == "num_global_kv_heads" && *value == arch.json().value("num_kv_heads", Json()))
      continue;
    if (key == "v_head_dim" && *value == arch.json().value("head_dim", Json())) continue;
    arch.Unsupported(key, "is not supported yet");
  }
}

kernels::Gate ReadGate(const JsonKeys& arch) {
  const std::string act = arch.String("hidden_act", "silu");
  if (act == "silu") return kernels::GateFunction::kSilu;
  if (act == "gelu_tanh") return kernels::GateFunction::kGeluTanh;
  if (act != kClampedSwiglu) {
    arch.Unsupported("hidden_act", fmt::format("'{}' is not supported yet", act));
  }
  const std::optional<JsonKeys> block = arch.Object("moewe");
  const std::optional<JsonKeys> keys = block ? block->Object(kClampedSwiglu) : std::nullopt;
  if (!keys) arch.Fail("hidden_act", "needs moewe.clamped_swiglu, which is missing");
  return {kernels::GateFunction::kClampedSwiglu,
          static_cast<float>(keys->Number("alpha", -kMaxMultiplier, kMaxMultiplier)),
          static_cast<float>(keys->Number("limit", 0.0, kMaxMultiplier))};
}

void WriteGate(const kernels::Gate& gate, Json* arch, Json* moewe) {
  if (gate == kernels::GateFunction::kGeluTanh) (*arch)["hidden_act"] = "gelu_tanh";
  if (gate.function != kernels::GateFunction::kClampedSwiglu) return;
  (*arch)["hidden_act"] = kClampedSwiglu;
  (*moewe)[kClampedSwiglu] = {{"alpha", ShortestDecimal(gate.alpha)},
                              {"limit", ShortestDecimal(gate.limit)}};
}

void ReadSizes(const JsonKeys& arch, ModelConfig* config) {
  config->arch_name = arch.String("arch_name");
  config->hidden_size = arch.Uint("hidden_size", 1, kMaxHidden);
  config->intermediate_size = arch.Uint("intermediate_size", 1, kMaxIntermediate);
  config->num_layers = arch.Uint("num_layers", 1, kMaxLayers);
  config->num_loops = arch.Uint("num_loops", 1, kMaxLoops, 1);
  config->loop_final_norm = config->num_loops > 1 && arch.Bool("loop_final_norm", false);
  config->vocab_size = arch.Uint("vocab_size", 1, kMaxVocab);
  config->max_position_embeddings = arch.Uint("max_position_embeddings", 1, kMaxContext);
  config->rms_norm_eps = static_cast<float>(arch.Number("rms_norm_eps", 0.0, 1.0));
  config->tie_word_embeddings = arch.Bool("tie_word_embeddings", false);
  const std::string style = arch.String("norm_style", "qwen");
  if (style != "qwen" && style != "gemma") {
    arch.Fail("norm_style", fmt::format("must be qwen or gemma, is '{}'", style));
  }
  config->norm_weight_offset = style == "gemma" ? 1.0f : 0.0f;
  config->gate_function = ReadGate(arch);
}

// layer_types tags where one of them slides; else sliding_window_pattern.
std::vector<bool> ReadSliding(const JsonKeys& arch, const std::vector<std::string>& tags) {
  std::vector<bool> sliding;
  for (const std::string& tag : tags) sliding.push_back(tag == "SlidingAttention");
  const bool tagged = std::find(sliding.begin(), sliding.end(), true) != sliding.end();
  if (!tagged && arch.Has("sliding_window_pattern") && arch.Has("sliding_window")) {
    const uint32_t pattern = arch.Uint("sliding_window_pattern", 1, UINT32_MAX);
    for (size_t i = 0; i < tags.size(); ++i) sliding[i] = (i + 1) % pattern != 0;
  }
  return sliding;
}

// What a tag says of a layer; `attention` for those that have it.
MixerKind MixerOfTag(const JsonKeys& arch, const std::string& tag, MixerKind attention) {
  if (tag == "FullAttention" || tag == "SlidingAttention") return attention;
  const MixerKind kind = RecurrentKindOfTag(tag);
  if (!IsRecurrent(kind)) {
    arch.Fail("layer_types", fmt::format("holds the unknown tag '{}'", tag));
  }
  return kind;
}

void ReadLayers(const JsonKeys& arch, ModelConfig* config) {
  LayerConfig base;
  base.num_heads = arch.Uint("num_attention_heads", 1, kMaxHeads);
  base.num_kv_heads = arch.Uint("num_kv_heads", 1, kMaxHeads);
  base.head_dim = arch.Uint("head_dim", 1, kMaxHeadDim);
  if (const auto mla = arch.Object("mla")) {
    config->mla = MlaFromCmf(*mla);
    base.mixer = MixerKind::kMla;
    base.num_kv_heads = base.num_heads;
    base.head_dim = config->mla.qk_nope_head_dim + config->mla.qk_rope_head_dim;
  }
  std::vector<uint32_t> heads;
  if (arch.Has("attention_heads_per_layer")) {
    heads = arch.Uints("attention_heads_per_layer", config->num_layers, 1, kMaxHeads);
  }
  const std::vector<std::string> tags = arch.Strings("layer_types", config->num_layers);
  const std::vector<bool> sliding = ReadSliding(arch, tags);
  for (uint32_t i = 0; i < config->num_layers; ++i) {
    LayerConfig layer = base;
    layer.mixer = MixerOfTag(arch, tags[i], base.mixer);
    if (IsRecurrent(layer.mixer)) {
      const MixerKind other = config->recurrent_kind();
      if (IsRecurrent(other) && other != layer.mixer) {
        arch.Unsupported("layer_types", "with two kinds of recurrent layers is not supported");
      }
      if (!IsRecurrent(other)) config->linear = LinearFromCmf(arch, layer.mixer);
    }
    if (!heads.empty()) layer.num_heads = heads[i];
    if (layer.num_heads % layer.num_kv_heads != 0) {
      arch.Fail(heads.empty() ? "num_attention_heads" : "attention_heads_per_layer",
                fmt::format("{} is not a multiple of num_kv_heads {}", layer.num_heads,
                            layer.num_kv_heads));
    }
    // Without a width a layer that slides means nothing.
    if (sliding[i]) layer.sliding_window = arch.Uint("sliding_window", 1, kMaxContext);
    config->layers.push_back(layer);
  }
}

void ReadMultipliers(const JsonKeys& arch, uint32_t head_dim, ModelConfig* config) {
  const auto number = [&](std::string_view key, double fallback) {
    return static_cast<float>(arch.Number(key, 0.0, kMaxMultiplier, fallback));
  };
  config->embed_multiplier = number("embed_multiplier", 1.0);
  config->logit_multiplier = number("logit_multiplier", 1.0);
  config->attn_soft_cap = number("attn_logit_softcapping", 0.0);
  config->final_soft_cap = number("final_logit_softcapping", 0.0);
  double scale = 1.0 / std::sqrt(arch.Number("query_pre_attn_scalar", 1e-30, 1e30, head_dim));
  if (const auto yarn = arch.Object("yarn")) {
    const double mscale = yarn->Number("mscale_all_dim", 0.0, kMaxMultiplier, 0.0);
    const double factor = yarn->Number("factor", kMinRopeFactor, kMaxRopeFactor);
    if (mscale != 0.0 && factor > 1.0) {
      scale *= (0.1 * mscale * std::log(factor) + 1.0) * (0.1 * mscale * std::log(factor) + 1.0);
    }
  }
  config->attention_scale = static_cast<float>(scale);
  if (const auto block = arch.Object("moewe")) {
    config->residual_multiplier =
        static_cast<float>(block->Number("residual_multiplier", 0.0, kMaxMultiplier, 1.0));
  }
}

void ReadMoe(const JsonKeys& arch, ModelConfig* config) {
  const std::optional<JsonKeys> keys = arch.Object("moe");
  if (!keys) return;
  if (keys->Bool("router_resonance", false))
    keys->Unsupported("router_resonance", "is not supported yet");
  MoeConfig& moe = config->moe;
  moe.num_experts = keys->Uint("num_experts", 1, kMaxExperts);
  moe.top_k = keys->Uint("top_k", 1, moe.num_experts);
  moe.intermediate_size = keys->Uint("moe_intermediate_size", 1, kMaxIntermediate);
  moe.shared_intermediate_size =
      keys->Uint("shared_expert_intermediate_size", 0, kMaxIntermediate, 0);
  moe.norm_topk_prob = keys->Bool("norm_topk_prob", false);
  moe.router_sigmoid = keys->Bool("router_sigmoid", false);
  moe.routed_scaling_factor =
      static_cast<float>(keys->Number("routed_scaling_factor", 0.0, kMaxMultiplier, 1.0));
  if (const auto block = arch.Object("moewe")) {
    moe.norm_epsilon = static_cast<float>(block->Number("topk_norm_epsilon", 0.0, 1.0, 0.0));
    if (const auto groups = block->Object("expert_groups")) ReadExpertGroupsFromCmf(*groups, &moe);
  }
  config->has_moe = true;
}

void WriteMoe(const ModelConfig& config, Json* arch, Json* moewe) {
  const MoeConfig& moe = config.moe;
  Json block = {{"num_experts", moe.num_experts},
                {"top_k", moe.top_k},
                {"moe_intermediate_size", moe.intermediate_size},
                {"norm_topk_prob", moe.norm_topk_prob}};
  if (moe.shared_intermediate_size != 0) {
    block["shared_expert_intermediate_size"] = moe.shared_intermediate_size;
  }
  if (moe.router_sigmoid) block["router_sigmoid"] = true;
  if (moe.routed_scaling_factor != 1.0f) {
    block["routed_scaling_factor"] = ShortestDecimal(moe.routed_scaling_factor);
  }
  if (moe.groups > 1) (*moewe)["expert_groups"] = ExpertGroupsToCmf(moe);
  if (moe.norm_epsilon != 0.0f) (*moewe)["topk_norm_epsilon"] = ShortestDecimal(moe.norm_epsilon);
  (*arch)["moe"] = std::move(block);
}

// The s whose 1/sqrt(s) is `scale`, as a whole number where one gives the same f32.
double QueryScalar(float scale) {
  const double exact = 1.0 / (static_cast<double>(scale) * static_cast<double>(scale));
  const double whole = std::round(exact);
  return static_cast<float>(1.0 / std::sqrt(whole)) == scale ? whole : exact;
}

[[noreturn]] void NotExpressible(const std::string& what) {
  throw Error(ErrorCode::kUnsupported, fmt::format("a CMF header cannot express {}", what));
}

// Of what a rope turns a part: a head, or its part for positions.
uint32_t RotatedWidth(const ModelConfig& config) {
  return config.has_mla() ? config.mla.rotated() : config.layers.front().head_dim;
}

// layer_types, the window and heads by layer; global and local ropes by way of the layers that use
// them.
void WriteLayers(const ModelConfig& config, Json* arch, Json* moewe) {
  const LayerConfig& first = config.layers.front();
  const Rope* global = nullptr;
  const Rope* local = nullptr;
  uint32_t window = 0;
  Json tags = Json::array();
  Json heads = Json::array();
  bool equal_heads = true;
  for (const LayerConfig& layer : config.layers) {
    const bool slides = layer.sliding_window != 0;
    const Rope* rope = &config.ropes.at(layer.rope);
    const Rope*& of_kind = slides ? local : global;
    if (of_kind != nullptr && of_kind != rope)
      NotExpressible("layers of one kind with different ropes");
    of_kind = rope;
    if (slides && window != 0 && window != layer.sliding_window)
      NotExpressible("two sliding windows");
    if (slides) window = layer.sliding_window;
    if (layer.num_kv_heads != first.num_kv_heads || layer.head_dim != first.head_dim) {
      NotExpressible("KV heads or head_dim that differ by layer");
    }
    equal_heads = equal_heads && layer.num_heads == first.num_heads;
    if (IsRecurrent(layer.mixer)) {
      tags.push_back(TagOfRecurrentKind(layer.mixer));
    } else {
      tags.push_back(slides ? "SlidingAttention" : "FullAttention");
    }
    heads.push_back(layer.num_heads);
  }
  (*arch)["layer_types"] = std::move(tags);
  if (!equal_heads) (*arch)["attention_heads_per_layer"] = std::move(heads);
  if (window != 0) (*arch)["sliding_window"] = window;
  if (global == nullptr) global = local;
  WriteRopesToCmf(*global, local == nullptr || local == global ? nullptr : local,
                  RotatedWidth(config), arch, moewe);
}

}  // namespace

ModelConfig ConfigFromCmfHeader(const Json& header, const std::string& file) {
  const std::optional<JsonKeys> arch = JsonKeys(header, file, "header").Object("arch");
  if (!arch) throw Error(ErrorCode::kParse, "the header has no arch", {file, "header.arch"});
  RefuseUnsupported(*arch);
  ModelConfig config;
  ReadSizes(*arch, &config);
  ReadLayers(*arch, &config);
  const uint32_t head_dim = config.layers.front().head_dim;
  ReadMultipliers(*arch, head_dim, &config);
  ReadMoe(*arch, &config);
  if (const auto mtp = arch->Object("mtp")) {
    config.mtp_layers = mtp->Uint("num_layers", 0, kMaxLayers, 1);
    config.mtp_shares_vocabulary =
        mtp->Bool("share_lm_head", true) && mtp->Bool("share_embed", true);
    // Existing files do not say it, and their runtime reads what the last layer gives.
    const auto block = arch->Object("moewe");
    config.mtp_reads_normed = block && block->Bool(kMtpReadsNormed, false);
  }
  const Rope global = GlobalRopeFromCmf(*arch, RotatedWidth(config));
  AssignRopes(global, LocalRopeFromCmf(*arch, RotatedWidth(config), global), &config);
  for (const auto& [key, value] : arch->json().items()) {
    const auto is_key = [&](std::string_view known) { return known == key; };
    if (std::none_of(kKnownKeys.begin(), kKnownKeys.end(), is_key) &&
        std::none_of(kUnsupportedKeys.begin(), kUnsupportedKeys.end(), is_key)) {
      config.warnings.list.push_back(fmt::format("header.arch.{} is unknown and was ignored", key));
    }
  }
  return config;
}

Json ToCmfArch(const ModelConfig& config) {
  if (config.layers.empty()) NotExpressible("a model without layers");
  const LayerConfig& first = config.layers.front();
  Json arch;
  Json moewe = Json::object();
  arch["arch_name"] = config.arch_name;
  arch["hidden_size"] = config.hidden_size;
  arch["intermediate_size"] = config.intermediate_size;
  arch["num_layers"] = config.num_layers;
  if (config.num_loops > 1) {
    arch["num_loops"] = config.num_loops;
    arch["loop_final_norm"] = config.loop_final_norm;
  }
  arch["num_attention_heads"] = first.num_heads;
  arch["num_kv_heads"] = first.num_kv_heads;
  arch["head_dim"] = first.head_dim;
  arch["vocab_size"] = config.vocab_size;
  arch["rms_norm_eps"] = ShortestDecimal(config.rms_norm_eps);
  arch["norm_style"] = config.norm_weight_offset == 0.0f ? "qwen" : "gemma";
  arch["tie_word_embeddings"] = config.tie_word_embeddings;
  arch["max_position_embeddings"] = config.max_position_embeddings;
  WriteLayers(config, &arch, &moewe);
  if (config.has_mla()) arch["mla"] = MlaToCmf(config.mla);
  if (const MixerKind kind = config.recurrent_kind(); IsRecurrent(kind)) {
    LinearToCmf(config.linear, kind, &arch);
  }
  WriteGate(config.gate_function, &arch, &moewe);
  const auto write = [&](const char* key, float value, float absent) {
    if (value != absent) arch[key] = ShortestDecimal(value);
  };
  write("embed_multiplier", config.embed_multiplier, 1.0f);
  write("logit_multiplier", config.logit_multiplier, 1.0f);
  write("attn_logit_softcapping", config.attn_soft_cap, 0.0f);
  write("final_logit_softcapping", config.final_soft_cap, 0.0f);
  if (config.attention_scale !=
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(first.head_dim)))) {
    arch["query_pre_attn_scalar"] = QueryScalar(config.attention_scale);
  }
  if (config.has_moe) WriteMoe(config, &arch, &moewe);
  if (config.mtp_layers != 0) {
    arch["mtp"] = {{"num_layers", config.mtp_layers},
                   {"share_lm_head", config.mtp_shares_vocabulary},
                   {"share_embed", config.mtp_shares_vocabulary}};
    if (config.mtp_reads_normed) moewe[kMtpReadsNormed] = true;
  }
  if (config.residual_multiplier != 1.0f) {
    moewe["residual_multiplier"] = ShortestDecimal(config.residual_multiplier);
  }
  if (!moewe.empty()) arch["moewe"] = std::move(moewe);
  return arch;
}

}  // namespace moewe::model
