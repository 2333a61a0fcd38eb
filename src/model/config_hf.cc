// config.json of a Hugging Face checkpoint, in the published spelling or the one of transformers 5.
#include <fmt/format.h>

#include <cmath>

#include "model/config.h"
#include "model/config_keys.h"
#include "model/config_limits.h"
#include "model/config_linear.h"
#include "model/config_mla.h"
#include "model/families.h"
#include "model/fp8_config.h"
#include "model/generic_family.h"
#include "model/json_keys.h"
#include "model/rope_config.h"

namespace moewe::model {
namespace {

using Json = nlohmann::ordered_json;

void RefuseQuantizedWeights(const JsonKeys& keys) {
  for (const char* key : {"quantization_config", "compression_config"}) {
    if (key == std::string_view("quantization_config") && ReadFp8Blocks(keys)) continue;
    if (const auto quant = keys.Object(key)) {
      // gpt-oss is published so, and its experts are unpacked.
      if (keys.String("model_type", "") == "gpt_oss" &&
          quant->String("quant_method", "") == "mxfp4") {
        continue;
      }
      keys.Unsupported(
          key,
          fmt::format("holds weights quantized by '{}', which moewe cannot read: use the original "
                      "checkpoint",
                      quant->String("quant_method", "an unnamed method")));
    }
  }
}

FamilyRow Family(const JsonKeys& keys, std::vector<std::string>* warnings) {
  const std::string type = keys.String("model_type", "");
  if (const FamilyRow* row = FindFamily(type)) return *row;
  // The first files of MiniMax-M2 have the model_type of its predecessor.
  if (const Json* names = keys.Find("architectures");
      type == "minimax" && names != nullptr && *names == Json::array({"MiniMaxM2ForCausalLM"})) {
    return *FindFamily("minimax_m2");
  }
  for (std::string_view planned : PlannedFamilies()) {
    if (planned == type)
      keys.Unsupported("model_type", fmt::format("'{}' is not supported yet", type));
  }
  std::string problem;
  if (const std::optional<FamilyRow> row = GenericFamily(keys, &problem)) {
    warnings->push_back(
        fmt::format("model_type '{}' is not known; the model was read by the keys that such models "
                    "share",
                    row->name));
    return *row;
  }
  if (type.empty()) keys.Fail("model_type", "is missing");
  std::string known;
  for (const FamilyRow& row : Families()) {
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  keys.Unsupported("model_type",
                   fmt::format("'{}' is not known ({}); known families: {}", type, problem, known));
}

// Options that change the math in ways that no block here has.
void RefuseUnsupportedOptions(const JsonKeys& keys, const FamilyRow& family) {
  for (const char* key : {"use_bidirectional_attention", "use_bias", "mlp_bias"}) {
    if (keys.Bool(key, false)) keys.Unsupported(key, "is not supported yet");
  }
  if (keys.Number("clip_qkv", -kMaxMultiplier, kMaxMultiplier, 0.0) != 0.0) {
    keys.Unsupported("clip_qkv", "is not supported yet");
  }
  // Laguna's that transformers has and moewe does not.
  if (keys.Bool("moe_apply_router_weight_on_input", false)) {
    keys.Unsupported("moe_apply_router_weight_on_input", "is not supported yet");
  }
  if (keys.Number("moe_router_logit_softcapping", 0.0, kMaxMultiplier, 0.0) != 0.0) {
    keys.Unsupported("moe_router_logit_softcapping", "is not supported yet");
  }
  if (!family.loops && keys.Uint("num_loops", 1, kMaxLoops, 1) > 1) {
    keys.Unsupported("num_loops", "above 1 is not supported for this family");
  }
  if (family.name == "deepseek" && keys.String("scoring_func", "softmax") != "softmax") {
    keys.Unsupported("scoring_func", "other than softmax is not supported for this family");
  }
  if (!family.moe.sigmoid || family.moe.grouped) return;
  for (const char* key : {"n_group", "topk_group"}) {
    if (keys.Uint(key, 1, kMaxExperts, 1) > 1) {
      keys.Unsupported(key, "above 1 (group-limited routing) is not supported yet");
    }
  }
  for (const auto& [key, meant] :
       {std::pair{"scoring_func", "sigmoid"}, {"topk_method", "noaux_tc"}}) {
    if (const std::string value = keys.String(key, meant); value != meant) {
      keys.Unsupported(key, fmt::format("'{}' is not supported yet for this family", value));
    }
  }
  if (const Json* kinds = keys.Find("attn_type_list"); kinds != nullptr && kinds->is_array()) {
    for (const Json& kind : *kinds) {
      if (kind != 1)
        keys.Unsupported("attn_type_list", "other than softmax attention is not supported yet");
    }
  }
}

kernels::Gate ReadGateFunction(const JsonKeys& keys, const FamilyRow& family) {
  const std::string_view key =
      family.gemma && keys.Has("hidden_activation") ? "hidden_activation" : "hidden_act";
  // The other one means nothing then.
  if (key == "hidden_activation") keys.Accept({"hidden_act"});
  const std::string name = keys.String(key, family.gemma ? "gelu_pytorch_tanh" : "silu");
  if (family.clamped_swiglu && name == "silu") {
    return {kernels::GateFunction::kClampedSwiglu,
            static_cast<float>(keys.Number("swiglu_alpha", -kMaxMultiplier, kMaxMultiplier, 1.702)),
            static_cast<float>(keys.Number("swiglu_limit", 0.0, kMaxMultiplier, 7.0))};
  }
  if (name == "silu" || name == "swish") return kernels::GateFunction::kSilu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return kernels::GateFunction::kGeluTanh;
  // The first Gemma files say gelu and mean its tanh form.
  if (name == "gelu" && family.name == "gemma") return kernels::GateFunction::kGeluTanh;
  keys.Unsupported(key, fmt::format("'{}' is not supported yet", name));
}

void ReadSizes(const JsonKeys& keys, const FamilyRow& family, ModelConfig* config) {
  config->arch_name = std::string(family.name);
  config->hidden_size = keys.Uint("hidden_size", 1, kMaxHidden, family.hidden_size);
  // Without dense layers it may be that of the experts.
  const bool of_experts = family.intermediate_size == 0 && !keys.Has("intermediate_size");
  config->intermediate_size =
      keys.Uint(of_experts ? "moe_intermediate_size" : "intermediate_size", 1, kMaxIntermediate,
                of_experts ? family.moe.width : family.intermediate_size);
  config->num_layers = keys.Uint("num_hidden_layers", 1, kMaxLayers, family.num_layers);
  config->vocab_size = keys.Uint("vocab_size", 1, kMaxVocab, family.vocab_size);
  const std::string_view positions = keys.OneOf({"max_position_embeddings", "model_max_length"});
  config->max_position_embeddings =
      keys.Uint(positions.empty() ? "max_position_embeddings" : positions, 1, kMaxContext,
                family.max_positions);
  const std::string_view eps = keys.OneOf({"rms_norm_eps", "norm_eps"});
  config->rms_norm_eps = static_cast<float>(
      keys.Number(eps.empty() ? "rms_norm_eps" : eps, 0.0, 1.0, family.rms_norm_eps));
  if (family.norm_plus_one) config->norm_weight_offset = 1.0f;
  config->gate_function = ReadGateFunction(keys, family);
  if (family.loops) {
    config->num_loops = keys.Uint("num_loops", 1, kMaxLoops, 1);
    config->loop_final_norm = config->num_loops > 1 && !keys.Bool("skip_loop_final_norm", true);
  }
}

LayerConfig ReadHeads(const JsonKeys& keys, const FamilyRow& family, const ModelConfig& config) {
  LayerConfig layer;
  layer.num_heads = keys.Uint("num_attention_heads", 1, kMaxHeads, family.num_heads);
  // Null means as many as query heads; left out means the family's default where that can be.
  const bool has_default = family.num_kv_heads != 0 && !keys.IsNull("num_key_value_heads") &&
                           layer.num_heads % family.num_kv_heads == 0;
  layer.num_kv_heads = keys.Uint("num_key_value_heads", 1, kMaxHeads,
                                 has_default ? family.num_kv_heads : layer.num_heads);
  if (layer.num_heads % layer.num_kv_heads != 0) {
    keys.Fail("num_key_value_heads", fmt::format("{} does not divide num_attention_heads {}",
                                                 layer.num_kv_heads, layer.num_heads));
  }
  if (family.mla) {
    layer.mixer = MixerKind::kMla;
    layer.num_kv_heads = layer.num_heads;
    layer.head_dim = config.mla.qk_nope_head_dim + config.mla.qk_rope_head_dim;
    keys.Accept({"head_dim"});  // transformers 5 writes the rotated part's
    return layer;
  }
  uint32_t head_dim = keys.IsNull("head_dim") ? 0 : family.head_dim;
  if (head_dim == 0 && !keys.Has("head_dim")) {
    if (config.hidden_size % layer.num_heads != 0) {
      keys.Fail("num_attention_heads",
                fmt::format("{} does not divide hidden_size {}, and there is no head_dim",
                            layer.num_heads, config.hidden_size));
    }
    head_dim = config.hidden_size / layer.num_heads;
  }
  layer.head_dim = keys.Uint("head_dim", 1, kMaxHeadDim, head_dim);
  return layer;
}

// How many query heads each layer has, where that differs.
void ReadHeadsPerLayer(const JsonKeys& keys, ModelConfig* config) {
  constexpr std::string_view kKey = "num_attention_heads_per_layer";
  if (!keys.Has(kKey)) return;
  const std::vector<uint32_t> heads = keys.Uints(kKey, config->num_layers, 1, kMaxHeads);
  for (uint32_t i = 0; i < config->num_layers; ++i) {
    LayerConfig& layer = config->layers[i];
    if (layer.mixer != MixerKind::kAttention) keys.Unsupported(kKey, "is not supported here");
    if (heads[i] % layer.num_kv_heads != 0) {
      keys.Fail(kKey, fmt::format("has {} for layer {}, which is not a multiple of "
                                  "num_key_value_heads {}",
                                  heads[i], i, layer.num_kv_heads));
    }
    layer.num_heads = heads[i];
  }
}

// 0 = none. Null is none too, left out is the family's default.
uint32_t ReadWindow(const JsonKeys& keys, const FamilyRow& family) {
  const bool gated = family.window == WindowRule::kFromLayer ||
                     family.window == WindowRule::kEvenBelow ||
                     family.window == WindowRule::kAllIfEnabled;
  const bool no_window = keys.Has("use_sliding_window") && !keys.Bool("use_sliding_window", false);
  if (gated ? !keys.Bool("use_sliding_window", false) : no_window) {
    if (!gated && family.window != WindowRule::kNone) {
      keys.Unsupported("use_sliding_window", "false is not supported for this family");
    }
    keys.Accept({"sliding_window", "max_window_layers"});
    return 0;
  }
  if (family.window == WindowRule::kNone) return 0;
  const uint32_t window = keys.IsNull("sliding_window")
                              ? 0
                              : keys.Uint("sliding_window", 0, kMaxContext, family.window_size);
  if (window == 0) keys.Accept({"max_window_layers"});
  return window;
}

// Which layers slide, by the family's rule.
std::vector<bool> SlidingByRule(const JsonKeys& keys, const FamilyRow& family, uint32_t window,
                                uint32_t num_layers) {
  std::vector<bool> sliding(num_layers, false);
  if (window == 0) return sliding;
  const uint32_t max_window_layers = keys.Uint("max_window_layers", 0, kMaxContext, 28);
  const std::string_view spelled =
      keys.OneOf({"sliding_window_pattern", "_sliding_window_pattern"});
  const uint32_t pattern =
      keys.Uint(spelled.empty() ? "sliding_window_pattern" : spelled, 1, kMaxLayers, 6);
  for (uint32_t i = 0; i < num_layers; ++i) {
    switch (family.window) {
      case WindowRule::kNone:
      case WindowRule::kListed:
        break;
      case WindowRule::kAll:
      case WindowRule::kAllIfEnabled:
        sliding[i] = true;
        break;
      case WindowRule::kFromLayer:
        sliding[i] = i >= max_window_layers;
        break;
      case WindowRule::kEvenBelow:
        sliding[i] = i % 2 == 0 && i < max_window_layers;
        break;
      case WindowRule::kEven:
        sliding[i] = i % 2 == 0;
        break;
      case WindowRule::kPattern:
        sliding[i] = (i + 1) % pattern != 0;
        break;
    }
  }
  return sliding;
}

// layer_types where the config has it, else the rule.
std::vector<bool> ReadSliding(const JsonKeys& keys, const FamilyRow& family, uint32_t window,
                              uint32_t num_layers) {
  std::vector<bool> by_rule;
  const bool listed = keys.Has("layer_types");
  const bool rule_is_final = family.window == WindowRule::kNone ||
                             family.window == WindowRule::kAll ||
                             family.window == WindowRule::kAllIfEnabled;
  if (!listed || rule_is_final) by_rule = SlidingByRule(keys, family, window, num_layers);
  if (!listed) return by_rule;
  keys.Accept({"sliding_window_pattern", "_sliding_window_pattern", "max_window_layers"});
  std::vector<bool> sliding;
  for (const std::string& type : keys.Strings("layer_types", num_layers)) {
    const bool recurrent = IsRecurrent(family.recurrent) && IsRecurrentType(type);
    if (type != "sliding_attention" && type != "full_attention" && !recurrent) {
      keys.Unsupported("layer_types", fmt::format("holds '{}', which is not supported yet", type));
    }
    sliding.push_back(type == "sliding_attention");
    if (sliding.back() && window == 0) {
      keys.Fail("sliding_window", "is missing though layer_types has sliding_attention");
    }
  }
  if (rule_is_final && sliding != by_rule) {
    keys.Unsupported("layer_types",
                     "that differ from layer to layer are not supported for this family");
  }
  return sliding;
}

RopeDefaults DefaultsOfRope(const JsonKeys& keys, const FamilyRow& family, const LayerConfig& heads,
                            const ModelConfig& config) {
  RopeDefaults defaults;
  defaults.theta = keys.Number("rope_theta", 1.0, kMaxRopeTheta, family.rope_theta);
  defaults.head_dim = family.mla ? config.mla.rotated() : heads.head_dim;
  defaults.partial_rotary_factor =
      keys.Number("partial_rotary_factor", 0.0, 1.0, family.partial_rotary_factor);
  if (family.name == "minimax_m2" && keys.Has("rotary_dim")) {
    defaults.partial_rotary_factor =
        static_cast<double>(keys.Uint("rotary_dim", 2, heads.head_dim)) / heads.head_dim;
  }
  defaults.max_positions = config.max_position_embeddings;
  defaults.interleaved = family.rope_interleaved && keys.Bool("rope_interleave", true);
  defaults.sections = family.recurrent == MixerKind::kGatedDeltaNet;
  defaults.yarn_means_longrope = family.name == "phi3";
  if (keys.Has("original_max_position_embeddings")) {
    defaults.original_max_positions =
        keys.Uint("original_max_position_embeddings", 1, kMaxRopePositions);
  } else if (family.name == "phi3") {
    defaults.original_max_positions = family.max_positions;
  }
  return defaults;
}

// Ropes: rope_scaling (published) or rope_parameters (transformers 5), flat or by layer type.
void ReadRopes(const JsonKeys& keys, const FamilyRow& family, const LayerConfig& heads,
               ModelConfig* config) {
  RopeDefaults defaults = DefaultsOfRope(keys, family, heads, *config);
  std::optional<JsonKeys> flat = keys.Object("rope_scaling");
  const std::optional<JsonKeys> modern = keys.Object("rope_parameters");
  const bool by_kind =
      modern && (modern->Has("full_attention") || modern->Has("sliding_attention"));
  if (!flat && !by_kind) flat = modern;
  const auto of_kind = [&](const char* kind) {
    return by_kind ? modern->Object(kind) : std::optional<JsonKeys>{};
  };
  static const Json kGptOss = {{"rope_type", "yarn"},
                               {"factor", 32.0},
                               {"truncate", false},
                               {"original_max_position_embeddings", 4096}};
  if (!flat && !by_kind && family.name == "gpt_oss") flat = JsonKeys(kGptOss, "", "");
  const std::optional<JsonKeys> full = of_kind("full_attention");
  // Where each kind has parameters, they say all.
  if (by_kind && !keys.Has("partial_rotary_factor")) defaults.partial_rotary_factor = 1.0;
  const Rope global = RopeFromHuggingFace(flat ? flat : full, defaults);
  if (flat && modern && !by_kind && !(RopeFromHuggingFace(modern, defaults) == global)) {
    keys.Fail("rope_parameters", "disagrees with rope_scaling");
  }
  Rope local = global;
  if (by_kind || family.local_rope_theta != 0.0) {
    if (family.local_rope_theta != 0.0) {
      defaults.theta =
          keys.Number("rope_local_base_freq", 1.0, kMaxRopeTheta, family.local_rope_theta);
      defaults.partial_rotary_factor = 1.0;
    }
    local = RopeFromHuggingFace(of_kind("sliding_attention"), defaults);
  }
  AssignRopes(global, local, config);
}

void ReadMultipliers(const JsonKeys& keys, const FamilyRow& family, uint32_t head_dim,
                     ModelConfig* config) {
  config->attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
  if (family.gemma) {
    config->norm_weight_offset = 1.0f;
    config->embed_multiplier =
        static_cast<float>(std::sqrt(static_cast<double>(config->hidden_size)));
  }
  if (family.name == "gemma2" || family.name == "gemma3") {
    const double scalar = keys.Number("query_pre_attn_scalar", 1e-9, kMaxMultiplier, 256.0);
    config->attention_scale = static_cast<float>(1.0 / std::sqrt(scalar));
    const auto cap = [&](std::string_view key, double fallback) {
      return static_cast<float>(keys.IsNull(key) ? 0.0
                                                 : keys.Number(key, 0.0, kMaxMultiplier, fallback));
    };
    config->attn_soft_cap = cap("attn_logit_softcapping", family.attn_soft_cap);
    config->final_soft_cap = cap("final_logit_softcapping", family.final_soft_cap);
  }
  if (family.name == "granitemoe") {
    const auto multiplier = [&](std::string_view key) {
      return keys.Number(key, 1e-9, kMaxMultiplier, 1.0);
    };
    config->embed_multiplier = static_cast<float>(multiplier("embedding_multiplier"));
    config->residual_multiplier = static_cast<float>(multiplier("residual_multiplier"));
    config->attention_scale = static_cast<float>(multiplier("attention_multiplier"));
    config->logit_multiplier = static_cast<float>(1.0 / multiplier("logits_scaling"));
  }
}

// DeepSeek's yarn scales the scores, too.
void ScaleByYarn(const JsonKeys& keys, ModelConfig* config) {
  std::optional<JsonKeys> rope = keys.Object("rope_scaling");
  if (!rope) rope = keys.Object("rope_parameters");
  if (!rope || !config->ropes.front().yarn) return;
  const double mscale = rope->Number("mscale_all_dim", 0.0, kMaxRopeFactor, 0.0);
  const double factor = config->ropes.front().yarn->factor;
  if (mscale == 0.0 || factor <= 1.0) return;
  const double scale = 0.1 * mscale * std::log(factor) + 1.0;
  config->attention_scale =
      static_cast<float>(static_cast<double>(config->attention_scale) * scale * scale);
}

void ReadMoe(const JsonKeys& keys, const FamilyRow& family, ModelConfig* config) {
  const MoeRow& row = family.moe;
  if (row.experts_key.empty()) {
    keys.Accept({"num_experts_per_tok"});  // of none: a router is refused when weights are bound
    return;
  }
  const std::string_view experts =
      keys.OneOf({row.experts_key, "num_experts", "num_local_experts"});
  MoeConfig moe;
  moe.num_experts =
      keys.Uint(experts.empty() ? row.experts_key : experts, 0, kMaxExperts, row.experts);
  if (moe.num_experts == 0) {  // a dense model of the family
    keys.Accept({row.top_k_key, row.shared_key, "num_experts_per_tok", "norm_topk_prob",
                 "routed_scaling_factor", "n_group", "topk_group", "topk_method", "scoring_func"});
    return;
  }
  const std::string_view top_k = keys.OneOf({row.top_k_key, "num_experts_per_tok", "moe_top_k"});
  moe.top_k = keys.Uint(top_k.empty() ? row.top_k_key : top_k, 1, moe.num_experts, row.top_k);
  moe.intermediate_size = row.own_width
                              ? keys.Uint("moe_intermediate_size", 1, kMaxIntermediate, row.width)
                              : config->intermediate_size;
  moe.norm_topk_prob = row.norm == TopkNorm::kAlways;
  if (moe.norm_topk_prob && !keys.Bool("norm_topk_prob", true)) {
    keys.Unsupported("norm_topk_prob", "false is not supported for this family");
  }
  if (row.norm == TopkNorm::kByKeyDefaultFalse || row.norm == TopkNorm::kByKeyDefaultTrue) {
    moe.norm_topk_prob = keys.Bool(row.norm_key, row.norm == TopkNorm::kByKeyDefaultTrue);
  }
  moe.router_sigmoid = row.sigmoid;
  moe.norm_epsilon = moe.norm_topk_prob ? row.norm_epsilon : 0.0f;
  if (row.scaled) {
    const std::string_view spelled =
        keys.OneOf({"routed_scaling_factor", "moe_routed_scaling_factor"});
    moe.routed_scaling_factor =
        static_cast<float>(keys.Number(spelled.empty() ? "routed_scaling_factor" : spelled, 0.0,
                                       kMaxMultiplier, family.name == "deepseek_v3" ? 2.5 : 1.0));
  }
  if (row.grouped) ReadExpertGroups(keys, family, &moe);
  if (row.shared == SharedExpert::kSize) {
    moe.shared_intermediate_size =
        keys.Uint(row.shared_key, 0, kMaxIntermediate, row.shared_default);
  } else if (row.shared == SharedExpert::kCount) {
    const uint32_t count = keys.Uint(row.shared_key, 0, 1024, row.shared_default);
    if (static_cast<uint64_t>(count) * moe.intermediate_size > kMaxIntermediate) {
      keys.Fail(row.shared_key, "times moe_intermediate_size is too large");
    }
    moe.shared_intermediate_size = count * moe.intermediate_size;
  }
  // A bound on the sum that could only bind for weights that f32 can hardly tell from 0.
  if (keys.Number("moe_norm_min", 0.0, 1.0, 0.0) > 1e-6) {
    keys.Unsupported("moe_norm_min", "above 1e-6 is not supported yet");
  }
  config->has_moe = true;
  config->moe = moe;
}

}  // namespace

ModelConfig ConfigFromHuggingFace(const Json& json, const std::string& file) {
  const JsonKeys outer(json, file, "config");
  RefuseQuantizedWeights(outer);
  // A multimodal checkpoint keeps its language model's config one level down.
  std::optional<JsonKeys> text = outer.Object("text_config");
  const JsonKeys keys =
      text && FindFamily(text->String("model_type", "")) != nullptr ? *text : outer;
  RefuseQuantizedWeights(keys);
  ModelConfig config;
  const FamilyRow family = Family(keys, &config.warnings.list);
  RefuseUnsupportedOptions(keys, family);
  ReadSizes(keys, family, &config);
  const std::string_view tie = keys.OneOf({"tie_word_embeddings", "tie_embedding"});
  const bool tied = keys.Bool(tie.empty() ? "tie_word_embeddings" : tie, family.tied);
  config.tie_word_embeddings = outer.Bool("tie_word_embeddings", tied);
  if (family.mla) config.mla = MlaFromHuggingFace(keys, family);
  LayerConfig layer = ReadHeads(keys, family, config);
  config.linear = LinearFromHuggingFace(keys, family);
  const MixerKind attention = layer.mixer;
  const uint32_t window = ReadWindow(keys, family);
  const std::vector<bool> sliding = ReadSliding(keys, family, window, config.num_layers);
  const std::vector<bool> recurrent = RecurrentLayers(keys, family, config.num_layers);
  for (uint32_t i = 0; i < config.num_layers; ++i) {
    layer.sliding_window = sliding[i] ? window : 0;
    layer.mixer = recurrent[i] ? family.recurrent : attention;
    config.layers.push_back(layer);
  }
  ReadHeadsPerLayer(keys, &config);
  ReadMultipliers(keys, family, layer.head_dim, &config);
  ReadMoe(keys, family, &config);
  ReadRopes(keys, family, layer, &config);
  if (family.mla) ScaleByYarn(keys, &config);
  RefuseUnreadKeys(keys);
  return config;
}

}  // namespace moewe::model
