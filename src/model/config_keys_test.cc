// A config.json is read as what it says, or refused by the names of the keys that nothing reads.
#include "model/config_keys.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "model/config.h"
#include "moewe/error.h"

namespace moewe::model {
namespace {

using Json = nlohmann::ordered_json;

Json Changed(Json json, const Json& changes) {
  json.update(changes);
  return json;
}

Json Family(const std::string& name, const Json& changes = Json::object()) {
  return Changed({{"model_type", name}}, changes);
}

std::string Refusal(const Json& config, std::string* field = nullptr) {
  try {
    ConfigFromHuggingFace(config, "config.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
    EXPECT_EQ(error.where().file, "config.json");
    if (field != nullptr) *field = error.where().field;
    return error.message();
  }
  ADD_FAILURE() << "read without an error: " << config.dump();
  return "";
}

TEST(ConfigKeys, WhatNobodyReadsIsNamed) {
  std::string field;
  const std::string one = Refusal(Family("llama", {{"no_rope_layer_interval", 4}}), &field);
  EXPECT_EQ(field, "config.no_rope_layer_interval");
  EXPECT_NE(one.find("config.no_rope_layer_interval"), std::string::npos) << one;
  const std::string two =
      Refusal(Family("qwen3_moe", {{"attention_sinks", true}, {"router_scale", 2.0}}));
  EXPECT_NE(two.find("config.attention_sinks"), std::string::npos) << two;
  EXPECT_NE(two.find("config.router_scale"), std::string::npos) << two;
  // A line stays a line.
  Json many = Family("llama");
  for (int i = 0; i < 100; ++i) many["unknown_option_" + std::to_string(i)] = 1;
  EXPECT_LT(Refusal(many).size(), 600u);
}

// A family has keys that mean nothing, or something else, in another one.
TEST(ConfigKeys, OneFamilysKeyIsAnothersUnknown) {
  const std::vector<std::pair<std::string, Json>> cases = {
      {"llama", {{"num_experts", 8}}},
      {"llama", {{"query_pre_attn_scalar", 144}}},
      {"llama", {{"sliding_window", 4096}}},
      {"mistral", {{"embedding_multiplier", 12.0}}},
      {"qwen3_moe", {{"routed_scaling_factor", 2.5}}},
      {"qwen3_moe", {{"scoring_func", "sigmoid"}}},
      {"qwen3_moe", {{"n_shared_experts", 1}}},
      {"qwen3_moe", {{"rope_interleave", true}}},
      {"mixtral", {{"n_shared_experts", 1}}},
      {"olmoe", {{"topk_group", 4}}},
      {"gemma2", {{"rotary_dim", 64}}},
      {"deepseek_v3", {{"index_topk", 2048}}},
      {"glm4_moe", {{"topk_method", "greedy"}, {"head_dim", 128}}},
      {"mixtral", {{"norm_topk_prob", false}}},
      {"mistral", {{"use_sliding_window", false}}}};
  for (const auto& [family, change] : cases) {
    std::string field;
    Refusal(Family(family, change), &field);
    EXPECT_EQ(field, "config." + change.begin().key()) << family;
  }
}

TEST(ConfigKeys, ObjectsInsideAreReadAsWell) {
  std::string field;
  const Json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}};
  Refusal(Family("qwen3", {{"rope_scaling", Changed(yarn, {{"short_mscale", 1.2}})}}), &field);
  EXPECT_EQ(field, "config.rope_scaling.short_mscale");
  Refusal(Family("llama", {{"rope_parameters", {{"mrope_section", {16, 24, 24}}}}}), &field);
  EXPECT_EQ(field, "config.rope_parameters.mrope_section");
  const Json kinds = {{"full_attention", {{"rope_theta", 1e6}}},
                      {"sliding_attention", {{"rope_theta", 1e4}, {"scale_base", 512}}}};
  Refusal(Family("gemma3_text", {{"rope_parameters", kinds}}), &field);
  EXPECT_EQ(field, "config.rope_parameters.sliding_attention.scale_base");
  // Two names of one rope must be one rope.
  EXPECT_NO_THROW(ConfigFromHuggingFace(
      Family("llama", {{"rope_scaling", yarn}, {"rope_parameters", yarn}}), ""));
  EXPECT_THROW(ConfigFromHuggingFace(
                   Family("llama", {{"rope_scaling", yarn},
                                    {"rope_parameters", Changed(yarn, {{"factor", 2.0}})}}),
                   ""),
               Error);
  // Of a model that sees and reads, the part that reads.
  const Json text = Family("gemma3_text", {{"altup_num_inputs", 4}});
  Refusal({{"model_type", "gemma3"}, {"text_config", text}}, &field);
  EXPECT_EQ(field, "config.text_config.altup_num_inputs");
}

TEST(ConfigKeys, WhatAsksForNothingIsNoObstacle) {
  for (const Json& value : {Json(nullptr), Json(false), Json(0), Json(0.0), Json(""),
                            Json(Json::array()), Json(Json::object())}) {
    EXPECT_TRUE(ChangesNoMath("some_new_option", value)) << value.dump();
  }
  for (const Json& value :
       {Json(true), Json(1), Json(-0.5), Json("x"), Json(Json::array({0})), Json(Json{{"a", 0}})}) {
    EXPECT_FALSE(ChangesNoMath("some_new_option", value)) << value.dump();
  }
  // Off is another model where absent means on.
  EXPECT_FALSE(ChangesNoMath("is_causal", false));
  EXPECT_TRUE(ChangesNoMath("is_causal", true));
  EXPECT_TRUE(ChangesNoMath("residual_multiplier", 1));
  EXPECT_FALSE(ChangesNoMath("residual_multiplier", 0.22));
  for (const char* key : {"bos_token_id", "boi_token_index", "resid_pdrop", "attention_dropout",
                          "aux_loss_alpha", "router_aux_loss_coef", "_name_or_path", "torch_dtype",
                          "initializer_range", "attention_bias", "mlp_only_layers"}) {
    EXPECT_TRUE(ChangesNoMath(key, "anything")) << key;
  }
}

// The keys that published files have beside sizes, with the values that they have there.
TEST(ConfigKeys, PublishedFilesAreRead) {
  const Json common = {{"architectures", {"ForCausalLM"}},
                       {"attention_bias", false},
                       {"attention_dropout", 0.0},
                       {"bos_token_id", 1},
                       {"eos_token_id", {2, 3}},
                       {"pad_token_id", nullptr},
                       {"hidden_act", "silu"},
                       {"initializer_range", 0.02},
                       {"rms_norm_eps", 1e-6},
                       {"tie_word_embeddings", false},
                       {"torch_dtype", "bfloat16"},
                       {"transformers_version", "4.51.0"},
                       {"use_cache", true}};
  const Json router = {{"output_router_logits", false}, {"router_aux_loss_coef", 0.001}};
  const Json qwen = {{"sliding_window", 4096},           {"max_window_layers", 28},
                     {"use_sliding_window", false},      {"decoder_sparse_step", 1},
                     {"mlp_only_layers", Json::array()}, {"norm_topk_prob", true}};
  const Json deepseek = {{"auto_map", {{"AutoConfig", "configuration.Config"}}},
                         {"aux_loss_alpha", 0.001},
                         {"seq_aux", true},
                         {"ep_size", 1},
                         {"first_k_dense_replace", 1},
                         {"moe_layer_freq", 1},
                         {"pretraining_tp", 1},
                         {"n_shared_experts", 2},
                         {"qk_nope_head_dim", 128},
                         {"v_head_dim", 128},
                         {"rope_scaling",
                          {{"type", "yarn"},
                           {"factor", 40},
                           {"beta_fast", 32},
                           {"beta_slow", 1},
                           {"mscale", 0.707},
                           {"mscale_all_dim", 0.707},
                           {"original_max_position_embeddings", 4096}}}};
  const std::vector<std::pair<std::string, Json>> files = {
      {"llama",
       {{"mlp_bias", false},
        {"pretraining_tp", 1},
        {"head_dim", 128},
        {"rope_scaling",
         {{"rope_type", "llama3"},
          {"factor", 8.0},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", 8192}}}}},
      {"mistral", {{"sliding_window", nullptr}, {"head_dim", 128}}},
      {"mixtral", Changed(router, {{"sliding_window", nullptr}, {"router_jitter_noise", 0.0}})},
      {"olmoe",
       Changed(router,
               {{"clip_qkv", nullptr}, {"norm_topk_prob", false}, {"rope_scaling", nullptr}})},
      {"qwen2_moe", Changed(Changed(router, qwen), {{"qkv_bias", true}})},
      {"qwen3_moe", Changed(Changed(router, qwen), {{"head_dim", 128}, {"rope_scaling", nullptr}})},
      {"deepseek_v2", Changed(deepseek, {{"topk_method", "group_limited_greedy"},
                                         {"n_group", 8},
                                         {"topk_group", 3},
                                         {"scoring_func", "softmax"},
                                         {"norm_topk_prob", false},
                                         {"routed_scaling_factor", 16.0}})},
      {"deepseek_v2", Changed(deepseek, {{"q_lora_rank", nullptr},
                                         {"topk_method", "greedy"},
                                         {"n_group", 1},
                                         {"topk_group", 1},
                                         {"scoring_func", "softmax"},
                                         {"norm_topk_prob", false},
                                         {"routed_scaling_factor", 1.0}})},
      {"deepseek_v3", Changed(deepseek, {{"topk_method", "noaux_tc"},
                                         {"n_group", 8},
                                         {"topk_group", 4},
                                         {"scoring_func", "sigmoid"},
                                         {"num_nextn_predict_layers", 1},
                                         {"routed_scaling_factor", 2.5}})},
      {"kimi_k2",
       Changed(deepseek, {{"topk_method", "noaux_tc"}, {"n_group", 1}, {"topk_group", 1}})},
      {"glm4_moe",
       {{"attention_bias", true},
        {"head_dim", 128},
        {"partial_rotary_factor", 0.5},
        {"rope_scaling", nullptr},
        {"use_qk_norm", true},
        {"n_group", 1},
        {"topk_group", 1},
        {"first_k_dense_replace", 3},
        {"norm_topk_prob", true},
        {"num_nextn_predict_layers", 1},
        {"routed_scaling_factor", 2.5}}},
      {"gemma2",
       {{"hidden_act", "gelu_pytorch_tanh"},
        {"hidden_activation", "gelu_pytorch_tanh"},
        {"cache_implementation", "hybrid"},
        {"attn_logit_softcapping", 50.0},
        {"final_logit_softcapping", 30.0},
        {"query_pre_attn_scalar", 224},
        {"sliding_window", 4096}}},
      {"gemma3_text",
       {{"hidden_activation", "gelu_pytorch_tanh"},
        {"attn_logit_softcapping", nullptr},
        {"final_logit_softcapping", nullptr},
        {"cache_implementation", "hybrid"},
        {"query_pre_attn_scalar", 256},
        {"rope_local_base_freq", 10000},
        {"rope_scaling", nullptr},
        {"sliding_window", 512},
        {"sliding_window_pattern", 6}}},
      {"phi3",
       {{"auto_map", {{"AutoConfig", "configuration.Config"}}},
        {"embd_pdrop", 0.0},
        {"resid_pdrop", 0.0},
        {"original_max_position_embeddings", 4096},
        {"sliding_window", 262144},
        {"full_attn_mod", 1},
        {"interpolate_factor", 1},
        {"lm_head_bias", false},
        {"mlp_bias", false}}},
      {"granitemoe", Changed(router, {{"attention_multiplier", 0.015625},
                                      {"embedding_multiplier", 12.0},
                                      {"residual_multiplier", 0.22},
                                      {"logits_scaling", 6.0},
                                      {"rope_scaling", nullptr}})},
      {"minimax_m2", Changed(router, {{"attn_type_list", Json::array({1, 1})},
                                      {"head_dim", 128},
                                      {"layernorm_full_attention_beta", 1.0},
                                      {"layernorm_linear_attention_beta", 1.0},
                                      {"layernorm_mlp_beta", 1.0},
                                      {"mlp_intermediate_size", 8192},
                                      {"mtp_transformer_layers", 1},
                                      {"num_mtp_modules", 3},
                                      {"qk_norm_type", "per_layer"},
                                      {"rotary_dim", 64},
                                      {"router_jitter_noise", 0.0},
                                      {"scoring_func", "sigmoid"},
                                      {"shared_intermediate_size", 0},
                                      {"shared_moe_mode", "sigmoid"},
                                      {"sliding_window", nullptr},
                                      {"swa_rope_theta", -1.0},
                                      {"use_mtp", true},
                                      {"use_qk_norm", true},
                                      {"use_routing_bias", true}})},
      {"ernie4_5_moe",
       {{"moe_capacity", {64, 64, 64}},
        {"moe_gate", "topk"},
        {"moe_layer_start_index", 1},
        {"moe_layer_end_index", 27},
        {"moe_layer_interval", 1},
        {"moe_use_aux_free", true},
        {"num_nextn_predict_layers", 1},
        {"use_bias", false},
        {"use_rmsnorm", true}}}};
  for (const auto& [family, file] : files) {
    try {
      ConfigFromHuggingFace(Changed(Changed(Family(family), common), file), "config.json");
    } catch (const Error& error) {
      ADD_FAILURE() << family << ": " << error.what();
    }
  }
}

TEST(ConfigKeys, TheFirstMiniMaxM2FilesCallThemselvesMiniMax) {
  const Json first = Family("minimax", {{"architectures", {"MiniMaxM2ForCausalLM"}}});
  EXPECT_EQ(ConfigFromHuggingFace(first, "").arch_name, "minimax_m2");
  Refusal(Family("minimax", {{"architectures", {"MiniMaxForCausalLM"}}}));
}

}  // namespace
}  // namespace moewe::model
