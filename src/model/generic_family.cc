#include "model/generic_family.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "model/config_keys.h"

namespace moewe::model {
namespace {

using Json = nlohmann::ordered_json;

// Keys that reading a config takes account of for every family, or that FamilyRow carries.
constexpr std::array<std::string_view, 26> kUnderstood = {
    "hidden_size",
    "intermediate_size",
    "moe_intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "max_position_embeddings",
    "rms_norm_eps",
    "rope_theta",
    "rope_parameters",
    "rope_scaling",
    "partial_rotary_factor",
    "tie_word_embeddings",
    "hidden_act",
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
    "num_experts_per_tok",
    "moe_top_k",
    "norm_topk_prob",
    "n_shared_experts",
    "shared_expert_intermediate_size",
    "layer_types",
    "use_bias",
};

// Whether a key could make this another model than the plain one that is read.
bool Asks(const JsonKeys& keys, std::string_view key, const Json& value) {
  if (std::find(kUnderstood.begin(), kUnderstood.end(), key) != kUnderstood.end()) return false;
  if (key == "sliding_window" || key == "max_window_layers") {
    const Json* used = keys.Find("use_sliding_window");
    if (used != nullptr && *used == false) return false;
  }
  return !ChangesNoMath(key, value);
}

}  // namespace

std::optional<FamilyRow> GenericFamily(const JsonKeys& keys, std::string* problem) {
  for (const auto& [key, value] : keys.json().items()) {
    if (!Asks(keys, key, value)) continue;
    *problem = fmt::format("config key '{}' has no known meaning there", key);
    return {};
  }
  FamilyRow row{};
  const Json* type = keys.Find("model_type");
  row.name = type != nullptr && type->is_string()
                 ? std::string_view(type->get_ref<const std::string&>())
                 : "unknown";
  row.max_positions = 4096;
  row.rms_norm_eps = 1e-6;
  row.rope_theta = 1e4;
  const std::string_view experts =
      keys.OneOf({"num_experts", "n_routed_experts", "num_local_experts"});
  if (experts.empty()) {
    *problem = "it names no number of experts";
    return {};
  }
  for (const char* key : {"hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads", "vocab_size", "num_experts_per_tok"}) {
    if (keys.Has(key)) continue;
    if (key == std::string_view("num_experts_per_tok") && keys.Has("moe_top_k")) continue;
    *problem = fmt::format("config key '{}' is missing", key);
    return {};
  }
  row.moe = {.experts_key = experts,
             .own_width = keys.Has("moe_intermediate_size"),
             .norm = TopkNorm::kByKeyDefaultFalse};
  if (keys.Has("shared_expert_intermediate_size")) {
    row.moe.shared = SharedExpert::kSize;
    row.moe.shared_key = "shared_expert_intermediate_size";
  } else if (keys.Has("n_shared_experts")) {
    row.moe.shared = SharedExpert::kCount;
    row.moe.shared_key = "n_shared_experts";
  }
  return row;
}

}  // namespace moewe::model
