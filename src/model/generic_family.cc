#include "model/generic_family.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace moewe::model {
namespace {

using Json = nlohmann::ordered_json;

// Keys that reading a config takes account of for every family, or that FamilyRow carries.
constexpr std::array<std::string_view, 33> kUnderstood = {
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
    // What the tensors say as well.
    "first_k_dense_replace",
    "moe_layer_freq",
    "decoder_sparse_step",
    "mlp_only_layers",
    "attention_bias",
    "qkv_bias",
    "use_qk_norm",
    "layer_types",
    "use_bias",
};

// Names, token ids, training and bookkeeping.
constexpr std::array<std::string_view, 30> kHarmless = {
    "model_type",
    "architectures",
    "auto_map",
    "_name_or_path",
    "transformers_version",
    "torch_dtype",
    "dtype",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "unk_token_id",
    "sep_token_id",
    "_attn_implementation",
    "ep_size",
    "initializer_range",
    "use_cache",
    "attention_dropout",
    "hidden_dropout",
    "output_router_logits",
    "router_aux_loss_coef",
    "aux_loss_alpha",
    "seq_aux",
    "pretraining_tp",
    "max_window_layers",
    "router_jitter_noise",
    "return_dict",
    "output_attentions",
    "output_hidden_states",
    "id2label",
    "label2id",
};

template <size_t kCount>
bool Contains(const std::array<std::string_view, kCount>& list, std::string_view key) {
  return std::find(list.begin(), list.end(), key) != list.end();
}

bool IsOff(const Json& value) {
  return value.is_null() || value == false || (value.is_number() && value.get<double>() == 0.0);
}

// Whether a key could make this another model than the plain one that is read.
bool Asks(const Json& config, const std::string& key, const Json& value) {
  if (Contains(kUnderstood, key) || Contains(kHarmless, key)) return false;
  if (key == "scoring_func") return value != "softmax";
  if (key == "topk_method") return value != "greedy";
  if (key == "n_group" || key == "topk_group") return !(IsOff(value) || value == 1);
  if (key == "routed_scaling_factor") return value != 1.0;
  if (key == "sliding_window" && config.value("use_sliding_window", Json()) == false) return false;
  return !IsOff(value);
}

}  // namespace

std::optional<FamilyRow> GenericFamily(const JsonKeys& keys, std::string* problem) {
  for (const auto& [key, value] : keys.json().items()) {
    if (!Asks(keys.json(), key, value)) continue;
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
