#include "model/config_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

namespace moewe::model {
namespace {

using Json = nlohmann::ordered_json;

// What the key is for is not what a forward pass computes.
constexpr auto kHarmless = std::to_array<std::string_view>(
    {// What the file is, and who wrote it.
     "model_type", "architectures", "auto_map", "transformers_version", "torch_dtype", "dtype",
     "tokenizer_class", "unsloth_version", "unsloth_fixed", "id2label", "label2id",
     "finetuning_task", "problem_type", "task_specific_params", "prefix", "is_decoder", "finetuned",
     // Training.
     "initializer_range", "router_jitter_noise", "pretraining_tp", "ep_size", "seq_aux",
     "moe_group", "moe_capacity",
     // How results are handed out and cached.
     "use_cache", "cache_implementation", "return_dict", "output_attentions",
     "output_hidden_states", "output_router_logits", "torchscript", "use_bfloat16",
     "chunk_size_feed_forward", "attn_implementation", "use_flash_attn", "use_flash_attention",
     "fuse_rope", "mamba_ssm_dtype",
     // How long texts and answers are.
     "model_max_length", "max_sequence_length", "seq_length", "tokenizer_model_max_length",
     "max_length", "min_length", "max_new_tokens",
     // Sampling: old configs carry it.
     "do_sample", "temperature", "top_k", "top_p", "typical_p", "num_beams", "num_beam_groups",
     "num_return_sequences", "repetition_penalty", "length_penalty", "diversity_penalty",
     "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "early_stopping", "bad_words_ids",
     "suppress_tokens", "begin_suppress_tokens", "remove_invalid_values"});

// What tensors are there says it, and a tensor that has no place is an error itself.
constexpr auto kInTensors = std::to_array<std::string_view>(
    {"attention_bias", "qkv_bias", "use_qkv_bias", "use_qk_norm", "qk_norm_type", "gating",
     "attn_output_gate",
     // Which layers have experts.
     "first_k_dense_replace", "num_dense_layers", "moe_layer_freq", "decoder_sparse_step",
     "mlp_only_layers", "mlp_layer_types", "moe_layer_start_index", "moe_layer_end_index",
     "moe_layer_interval",
     // What routers and experts have.
     "moe_use_aux_free", "use_routing_bias", "use_expert_bias", "moe_router_enable_expert_bias",
     "shared_moe_mode", "shared_intermediate_size", "mlp_intermediate_size",
     "moe_intermediate_size",
     // Heads that predict further tokens.
     "num_nextn_predict_layers", "mtp_num_hidden_layers", "mtp_transformer_layers",
     "num_mtp_modules", "use_mtp"});

// Parts of every plain model: absent means on, so saying that one is off asks for another model.
constexpr auto kOnUnlessSaid = std::to_array<std::string_view>(
    {"is_causal", "use_rope", "use_rotary_embedding", "use_rmsnorm", "scale_attn_weights"});

bool IsHarmless(std::string_view key) {
  return key.starts_with('_') || key.ends_with("_token_id") || key.ends_with("_token_ids") ||
         key.ends_with("_token_index") || key.ends_with("_pdrop") ||
         key.find("dropout") != key.npos || key.find("_loss_") != key.npos ||
         key.find("layerdrop") != key.npos;
}

bool IsNothing(const Json& value) {
  return value.is_null() || value == false || (value.is_number() && value.get<double>() == 0.0) ||
         (value.is_string() && value.get_ref<const std::string&>().empty()) ||
         (value.is_structured() && value.empty());
}

// A value under which the key asks for what a model without it does.
bool IsNeutral(std::string_view key, const Json& value) {
  static const std::vector<std::pair<std::string_view, Json>> kNeutral = {
      {"scoring_func", "softmax"},
      {"moe_gate_act", "softmax"},
      {"moe_gate", "topk"},
      {"topk_method", "greedy"},
      {"n_group", 1},
      {"topk_group", 1},
      {"num_expert_group", 1},
      {"routed_scaling_factor", 1.0},
      {"factor", 1.0},
      {"compression_ratio", 1.0},
      {"embedding_multiplier", 1.0},
      {"residual_multiplier", 1.0},
      {"logits_scaling", 1.0},
      {"full_attn_mod", 1},
      {"interpolate_factor", 1},
      {"num_loops", 1},
      {"swa_rope_theta", -1.0},
      {"layernorm_full_attention_alpha", 1.0},
      {"layernorm_full_attention_beta", 1.0},
      {"layernorm_linear_attention_alpha", 1.0},
      {"layernorm_linear_attention_beta", 1.0},
      {"layernorm_mlp_alpha", 1.0},
      {"layernorm_mlp_beta", 1.0},
      {"position_embedding_type", "rope"},
  };
  return std::any_of(kNeutral.begin(), kNeutral.end(), [&](const auto& neutral) {
    return neutral.first == key && neutral.second == value;
  });
}

template <size_t kCount>
bool Contains(const std::array<std::string_view, kCount>& list, std::string_view key) {
  return std::find(list.begin(), list.end(), key) != list.end();
}

void CollectUnread(const JsonKeys& keys, std::vector<std::string>* unread) {
  for (const auto& [key, value] : keys.json().items()) {
    if (!keys.WasAsked(key)) {
      if (!ChangesNoMath(key, value)) unread->push_back(keys.path() + "." + key);
      continue;
    }
    if (!value.is_object()) continue;
    const JsonKeys inner = *keys.Object(key);
    if (inner.AnyAsked()) CollectUnread(inner, unread);
  }
}

}  // namespace

bool ChangesNoMath(std::string_view key, const Json& value) {
  if (Contains(kHarmless, key) || IsHarmless(key) || Contains(kInTensors, key)) return true;
  if (Contains(kOnUnlessSaid, key)) return value.is_null() || value == true;
  return IsNothing(value) || IsNeutral(key, value);
}

void RefuseUnreadKeys(const JsonKeys& keys) {
  std::vector<std::string> unread;
  CollectUnread(keys, &unread);
  if (unread.empty()) return;
  // Long lists are no help to anyone.
  constexpr size_t kShown = 8;
  std::string names;
  for (size_t i = 0; i < std::min(unread.size(), kShown); ++i) {
    names += (i == 0 ? "" : ", ") + unread[i];
  }
  if (unread.size() > kShown) names += fmt::format(" and {} more", unread.size() - kShown);
  throw Error(ErrorCode::kUnsupported,
              fmt::format("{} may change what the model computes, and moewe does not know how in "
                          "this family",
                          names),
              {keys.file(), unread.front()});
}

}  // namespace moewe::model
