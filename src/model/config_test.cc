// ModelConfig from both spellings of every family, from CMF headers, and back.
#include "model/config.h"

#include <gtest/gtest.h>

#include <cmath>

#include "golden.h"
#include "model/families.h"
#include "moewe/error.h"

namespace moewe::model {
namespace {

using Json = nlohmann::ordered_json;

Json ReadConfig(const std::filesystem::path& path) { return Json(golden::ReadJson(path)); }

// The header JSON of a CMF file: its place is in the envelope (section 1).
Json CmfHeader(const std::filesystem::path& path) {
  const std::vector<uint8_t> bytes = golden::ReadBytes(path);
  uint64_t place[2];
  std::memcpy(place, bytes.data() + 0x10, sizeof(place));
  return Json::parse(bytes.begin() + static_cast<ptrdiff_t>(place[0]),
                     bytes.begin() + static_cast<ptrdiff_t>(place[0] + place[1]));
}

// The smallest config.json of a family: everything else is the family's default.
// (GLM's default sizes do not divide; every real file gives head_dim.)
Json Minimal(const std::string& family) {
  if (family == "glm4_moe") return {{"model_type", family}, {"head_dim", 128}};
  if (family == "lfm2_moe") {
    return {{"model_type", family}, {"layer_types", Json(std::vector<std::string>(32, "conv"))}};
  }
  if (family == "kimi_linear" || family == "bailing_hybrid") {
    return {{"model_type", family}, {"layer_group_size", 4}};
  }
  return {{"model_type", family}};
}

Json With(Json json, const Json& changes) {
  json.update(changes);
  return json;
}

ErrorCode CodeOf(const Json& config, std::string* field = nullptr) {
  try {
    ConfigFromHuggingFace(config, "config.json");
  } catch (const Error& error) {
    if (field != nullptr) *field = error.where().field;
    return error.code();
  }
  ADD_FAILURE() << "read without an error: " << config.dump();
  return ErrorCode::kInternal;
}

void ExpectRoundTrip(const ModelConfig& config) {
  const Json arch = ToCmfArch(config);
  const ModelConfig back =
      ConfigFromCmfHeader(Json::parse(Json{{"arch", arch}}.dump()), "written.cmf");
  EXPECT_TRUE(back == config) << arch.dump(1) << "\nthen\n" << ToCmfArch(back).dump(1);
  EXPECT_TRUE(back.warnings.list.empty()) << back.warnings.list.front();
}

class EveryFamily : public testing::TestWithParam<std::string> {};

TEST_P(EveryFamily, BothSpellingsGiveOneModel) {
  // transformers has no looped family and so no other spelling of it; Qwen3.5 was published in the
  // new one.
  const bool looped = GetParam() == "nanbeige";
  const std::string folder = "hf/" + (looped ? "looped" : GetParam());
  const ModelConfig published =
      ConfigFromHuggingFace(ReadConfig(golden::Path(folder + "/config.json")), "a");
  EXPECT_EQ(published.num_loops, looped ? 2u : 1u);
  ExpectRoundTrip(published);
  if (looped || GetParam().starts_with("qwen3_5")) return;
  const ModelConfig modern =
      ConfigFromHuggingFace(ReadConfig(golden::Path(folder + "/config.v5.json")), "b");
  EXPECT_TRUE(published == modern) << ToCmfArch(published).dump(1) << "\n"
                                   << ToCmfArch(modern).dump(1);
}

TEST_P(EveryFamily, DefaultsRoundTrip) {
  const ModelConfig config = ConfigFromHuggingFace(Minimal(GetParam()), "minimal");
  EXPECT_EQ(config.layers.size(), config.num_layers);
  ExpectRoundTrip(config);
}

std::vector<std::string> FamilyNames() {
  std::vector<std::string> names;
  for (const FamilyRow& row : Families()) {
    // The golden checkpoint of deepseek is one of vaults.
    if (row.name != "deepseek") names.emplace_back(row.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Families, EveryFamily, testing::ValuesIn(FamilyNames()),
                         [](const auto& instance) { return instance.param; });

TEST(Config, DefaultsAreTransformers) {
  const auto read = [](const std::string& family) {
    return ConfigFromHuggingFace(Minimal(family), "minimal");
  };
  const ModelConfig llama = read("llama");
  EXPECT_EQ(llama.layers[0].num_kv_heads, 32u);
  EXPECT_EQ(llama.layers[0].head_dim, 128u);
  EXPECT_EQ(llama.rms_norm_eps, 1e-6f);
  EXPECT_FALSE(llama.tie_word_embeddings);
  const ModelConfig mistral = read("mistral");
  EXPECT_EQ(mistral.layers[5].sliding_window, 4096u);
  EXPECT_EQ(mistral.layers[5].num_kv_heads, 8u);
  EXPECT_EQ(read("qwen3").layers[0].head_dim, 128u);
  EXPECT_EQ(read("qwen3").layers[31].sliding_window, 0u);  // use_sliding_window is off
  EXPECT_EQ(read("mixtral").ropes[0].theta, 1e6);
  EXPECT_TRUE(read("mixtral").moe.norm_topk_prob);
  EXPECT_FALSE(read("qwen3_moe").moe.norm_topk_prob);
  EXPECT_FALSE(read("olmoe").moe.norm_topk_prob);
  EXPECT_EQ(read("olmoe").moe.intermediate_size, 2048u);
  const ModelConfig gemma2 = read("gemma2");
  EXPECT_TRUE(gemma2.tie_word_embeddings);
  EXPECT_EQ(gemma2.attn_soft_cap, 50.0f);
  EXPECT_EQ(gemma2.final_soft_cap, 30.0f);
  EXPECT_EQ(gemma2.embed_multiplier, 48.0f);
  EXPECT_EQ(gemma2.layers[0].sliding_window, 4096u);
  EXPECT_EQ(gemma2.layers[1].sliding_window, 0u);
  const ModelConfig gemma3 = read("gemma3_text");
  EXPECT_EQ(gemma3.arch_name, "gemma3");
  EXPECT_EQ(gemma3.layers[4].sliding_window, 4096u);
  EXPECT_EQ(gemma3.layers[5].sliding_window, 0u);
  EXPECT_EQ(gemma3.ropes[gemma3.layers[4].rope].theta, 1e4);
  EXPECT_EQ(gemma3.ropes[gemma3.layers[5].rope].theta, 1e6);
  EXPECT_EQ(read("glm4_moe").ropes[0].rotary_dim, 64u);
  EXPECT_EQ(read("glm4_moe").moe.shared_intermediate_size, 1408u);
  EXPECT_EQ(read("minimax_m2").ropes[0].rotary_dim, 128u);
  EXPECT_EQ(read("ernie4_5_moe").moe.shared_intermediate_size, 2u * 1536u);
  EXPECT_TRUE(read("ernie4_5_moe").ropes[0].interleaved);
}

TEST(Config, SlidingWindowRules) {
  const Json qwen =
      With(Minimal("qwen2"), {{"use_sliding_window", true}, {"max_window_layers", 20}});
  const ModelConfig upper = ConfigFromHuggingFace(qwen, "");
  EXPECT_EQ(upper.layers[19].sliding_window, 0u);
  EXPECT_EQ(upper.layers[20].sliding_window, 4096u);
  ModelConfig listed = ConfigFromHuggingFace(
      With(Minimal("gemma2"),
           {{"num_hidden_layers", 2}, {"layer_types", {"full_attention", "sliding_attention"}}}),
      "");
  EXPECT_EQ(listed.layers[0].sliding_window, 0u);
  EXPECT_EQ(listed.layers[1].sliding_window, 4096u);
  EXPECT_EQ(ConfigFromHuggingFace(With(Minimal("mistral"), {{"sliding_window", nullptr}}), "")
                .layers[0]
                .sliding_window,
            0u);
}

TEST(Config, GemmaMultimodalReadsItsTextConfig) {
  const Json text = {
      {"model_type", "gemma3_text"}, {"hidden_size", 2560},
      {"num_hidden_layers", 34},     {"intermediate_size", 10240},
      {"sliding_window", 1024},      {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}}};
  const ModelConfig config = ConfigFromHuggingFace(
      {{"model_type", "gemma3"}, {"text_config", text}, {"vision_config", Json::object()}}, "");
  EXPECT_EQ(config.hidden_size, 2560u);
  EXPECT_EQ(config.vocab_size, 262208u);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.layers[0].sliding_window, 1024u);
  const Rope& global = config.ropes[config.layers[5].rope];
  const Rope& local = config.ropes[config.layers[0].rope];
  EXPECT_EQ(global.inv_freq[0], 0.125f);
  EXPECT_EQ(local.inv_freq[0], 1.0f);
}

// The formulas of golden/hf/README.md, evaluated in f64.
TEST(Config, RopeFrequencies) {
  const Json base = With(Minimal("llama"), {{"max_position_embeddings", 512}});
  const ModelConfig plain = ConfigFromHuggingFace(base, "");
  const auto& f = plain.ropes[0].inv_freq;
  ASSERT_EQ(f.size(), 64u);
  for (size_t i = 0; i < f.size(); ++i) {
    const double exact = std::pow(1e4, -2.0 * static_cast<double>(i) / 128.0);
    EXPECT_NEAR(f[i] / exact, 1.0, 1e-6);
  }
  const ModelConfig llama3 =
      ConfigFromHuggingFace(With(base, {{"rope_scaling",
                                         {{"rope_type", "llama3"},
                                          {"factor", 8.0},
                                          {"low_freq_factor", 1.0},
                                          {"high_freq_factor", 4.0},
                                          {"original_max_position_embeddings", 64}}}}),
                            "");
  const ModelConfig yarn = ConfigFromHuggingFace(
      With(base,
           {{"rope_scaling",
             {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 128}}}}),
      "");
  EXPECT_NEAR(yarn.ropes[0].attention_factor, 0.1 * std::log(4.0) + 1.0, 1e-6);
  const auto channel = [](double turns) {
    return 128.0 * std::log(128.0 / (2 * M_PI * turns)) / (2.0 * std::log(1e4));
  };
  const double low = std::max(std::floor(channel(32.0)), 0.0);
  const double high = std::ceil(channel(1.0));
  for (size_t i = 0; i < f.size(); ++i) {
    const double turns = 64.0 * f[i] / (2 * M_PI);
    const double s = std::clamp((turns - 1.0) / 3.0, 0.0, 1.0);
    EXPECT_NEAR(llama3.ropes[0].inv_freq[i] / ((1 - s) * f[i] / 8 + s * f[i]), 1.0, 1e-6) << i;
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    EXPECT_NEAR(yarn.ropes[0].inv_freq[i] / (f[i] / 4 * ramp + f[i] * (1 - ramp)), 1.0, 1e-6) << i;
  }
  EXPECT_EQ(CodeOf(With(base, {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}})),
            ErrorCode::kUnsupported);
}

TEST(Config, LongropeHasTwoSetsOfFactors) {
  const ModelConfig config =
      ConfigFromHuggingFace(ReadConfig(golden::Path("hf/phi3/config.json")), "");
  const Rope& rope = config.ropes[0];
  ASSERT_EQ(rope.inv_freq.size(), 6u);  // 0.75 of 16 channels
  EXPECT_EQ(rope.long_from, 512u);
  EXPECT_NEAR(rope.inv_freq_long[0], 0.5, 1e-7);
  EXPECT_NEAR(rope.inv_freq[5] / std::pow(1e4, -10.0 / 12.0), 1.0 / 3.0, 1e-6);
  EXPECT_NEAR(rope.attention_factor, std::sqrt(1 + std::log(4.0) / std::log(512.0)), 1e-6);
}

TEST(Config, RefusesByName) {
  std::string field;
  for (const char* method : {"gptq", "awq", "bitsandbytes", "fp8", "compressed-tensors", "mxfp4"}) {
    try {
      ConfigFromHuggingFace(
          With(Minimal("llama"), {{"quantization_config", {{"quant_method", method}}}}), "");
      ADD_FAILURE() << method;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      EXPECT_NE(error.message().find(method), std::string::npos) << error.message();
    }
  }
  for (std::string_view planned : PlannedFamilies()) {
    EXPECT_EQ(CodeOf(Minimal(std::string(planned))), ErrorCode::kUnsupported);
  }
  EXPECT_EQ(CodeOf(Minimal("no_such_model"), &field), ErrorCode::kUnsupported);
  EXPECT_EQ(field, "config.model_type");
  EXPECT_EQ(CodeOf(With(Minimal("llama"), {{"hidden_act", "gelu"}})), ErrorCode::kUnsupported);
  EXPECT_EQ(CodeOf(With(Minimal("glm4_moe"), {{"n_group", 4}})), ErrorCode::kUnsupported);
  EXPECT_EQ(CodeOf(With(Minimal("olmoe"), {{"clip_qkv", 8.0}})), ErrorCode::kUnsupported);
}

TEST(Config, LatentAttentionAndGroupsNameTheirKeys) {
  const Json v3(golden::ReadJson(golden::Path("hf/deepseek_v3/config.json")));
  const Json v2(golden::ReadJson(golden::Path("hf/deepseek_v2/config.json")));
  const ModelConfig config = ConfigFromHuggingFace(v3, "");
  EXPECT_EQ(config.CachedBy(config.layers[0]).key_width, 32u + 16);
  std::string field;
  EXPECT_EQ(CodeOf(With(v3, {{"qk_rope_head_dim", 15}}), &field), ErrorCode::kParse);
  EXPECT_EQ(field, "config.qk_rope_head_dim");
  EXPECT_EQ(CodeOf(With(v3, {{"kv_lora_rank", 0}}), &field), ErrorCode::kParse);
  EXPECT_EQ(field, "config.kv_lora_rank");
  EXPECT_EQ(CodeOf(With(v3, {{"n_group", 5}}), &field), ErrorCode::kParse);
  EXPECT_EQ(field, "config.n_group");
  EXPECT_EQ(CodeOf(With(v3, {{"topk_group", 5}}), &field), ErrorCode::kParse);
  EXPECT_EQ(field, "config.topk_group");
  // Four groups of four: one holds no more than four.
  EXPECT_EQ(CodeOf(With(v3, {{"topk_group", 1}, {"num_experts_per_tok", 5}}), &field),
            ErrorCode::kParse);
  EXPECT_EQ(field, "config.topk_group");
  EXPECT_EQ(CodeOf(With(v3, {{"topk_method", "greedy"}}), &field), ErrorCode::kUnsupported);
  EXPECT_EQ(field, "config.topk_method");
  EXPECT_EQ(CodeOf(With(v3, {{"scoring_func", "softmax"}}), &field), ErrorCode::kUnsupported);
  EXPECT_EQ(field, "config.scoring_func");
  EXPECT_EQ(CodeOf(With(v2, {{"norm_topk_prob", true}}), &field), ErrorCode::kUnsupported);
  EXPECT_EQ(field, "config.norm_topk_prob");
  // A family that has the same math under a name of its own.
  const Json kimi = With(v3, {{"model_type", "kimi_k2"}, {"n_group", 1}, {"topk_group", 1}});
  EXPECT_EQ(ConfigFromHuggingFace(kimi, "").moe.groups, 1u);
}

TEST(Config, LagunaHasHeadsAndRopesByLayer) {
  const Json json(golden::ReadJson(golden::Path("hf/laguna/config.json")));
  const ModelConfig config = ConfigFromHuggingFace(json, "");
  EXPECT_EQ(config.layers[0].num_heads, 4u);
  EXPECT_EQ(config.layers[1].num_heads, 6u);
  const Rope& full = config.ropes[config.layers[0].rope];
  EXPECT_EQ(full.rotary_dim, 12u);
  EXPECT_EQ(full.attention_factor, 1.15f);
  const Rope& sliding = config.ropes[config.layers[1].rope];
  EXPECT_EQ(sliding.rotary_dim, 24u);
  EXPECT_EQ(sliding.theta, 1e4);
  EXPECT_EQ(sliding.attention_factor, 1.0f);
  EXPECT_EQ(config.moe.routed_scaling_factor, 2.5f);

  // What a config leaves out is as in transformers.
  const ModelConfig minimal = ConfigFromHuggingFace(
      With(Minimal("laguna"),
           {{"num_hidden_layers", 2}, {"layer_types", {"full_attention", "sliding_attention"}}}),
      "");
  EXPECT_EQ(minimal.ropes[minimal.layers[0].rope].rotary_dim, 64u);
  EXPECT_EQ(minimal.ropes[minimal.layers[0].rope].theta, 5e5);
  EXPECT_EQ(minimal.ropes[minimal.layers[1].rope].rotary_dim, 128u);
  EXPECT_EQ(minimal.ropes[minimal.layers[1].rope].theta, 1e4);
  EXPECT_EQ(minimal.layers[1].sliding_window, 512u);
  Json parameters = json["rope_parameters"];
  parameters["full_attention"].erase("partial_rotary_factor");
  const ModelConfig whole =
      ConfigFromHuggingFace(With(json, {{"rope_parameters", parameters}}), "");
  EXPECT_EQ(whole.ropes[whole.layers[0].rope].rotary_dim, 24u);

  std::string field;
  for (const Json& heads : {Json{4, 6, 6}, Json{4, 6, 5, 4}, Json{4, 6, 6, 0}, Json{4, 6, 6, 4.5},
                            Json{4, 6, 6, "4"}, Json(4)}) {
    EXPECT_EQ(CodeOf(With(json, {{"num_attention_heads_per_layer", heads}}), &field),
              ErrorCode::kParse);
    EXPECT_EQ(field, "config.num_attention_heads_per_layer") << heads.dump();
  }
  EXPECT_EQ(CodeOf(With(json, {{"moe_apply_router_weight_on_input", true}}), &field),
            ErrorCode::kUnsupported);
  EXPECT_EQ(field, "config.moe_apply_router_weight_on_input");
  EXPECT_EQ(CodeOf(With(json, {{"moe_router_logit_softcapping", 30.0}}), &field),
            ErrorCode::kUnsupported);
  EXPECT_EQ(field, "config.moe_router_logit_softcapping");
}

TEST(Config, GptOssHasClampedGatesAndAnUnroundedYarn) {
  const ModelConfig minimal = ConfigFromHuggingFace(Minimal("gpt_oss"), "");
  EXPECT_EQ(minimal.gate_function,
            kernels::Gate(kernels::GateFunction::kClampedSwiglu, 1.702f, 7.0f));
  EXPECT_EQ(minimal.layers[0].sliding_window, 128u);
  EXPECT_EQ(minimal.layers[1].sliding_window, 0u);
  ASSERT_EQ(minimal.ropes.size(), 1u);
  ASSERT_TRUE(minimal.ropes[0].yarn.has_value());
  EXPECT_EQ(minimal.ropes[0].yarn->factor, 32.0);
  EXPECT_FALSE(minimal.ropes[0].yarn->truncate);
  EXPECT_NEAR(minimal.ropes[0].attention_factor, 0.1 * std::log(32.0) + 1.0, 1e-6);
  const Json json(golden::ReadJson(golden::Path("hf/gpt_oss/config.json")));
  EXPECT_EQ(ConfigFromHuggingFace(json, "").gate_function.limit, 2.5f);

  // As it is published; other quantizations of it stay what they are.
  const auto quantized = [&](const char* method) {
    return With(json, {{"quantization_config", {{"quant_method", method}}}});
  };
  EXPECT_TRUE(ConfigFromHuggingFace(quantized("mxfp4"), "") == ConfigFromHuggingFace(json, ""));
  std::string field;
  EXPECT_EQ(CodeOf(quantized("gptq"), &field), ErrorCode::kUnsupported);
  EXPECT_EQ(field, "config.quantization_config");
  EXPECT_EQ(CodeOf(With(json, {{"swiglu_limit", -1.0}}), &field), ErrorCode::kParse);
  EXPECT_EQ(field, "config.swiglu_limit");

  // The numbers of the gate are needed where its name is.
  Json arch = ToCmfArch(minimal);
  EXPECT_EQ(arch["hidden_act"], "clamped_swiglu");
  arch["moewe"].erase("clamped_swiglu");
  EXPECT_THROW(ConfigFromCmfHeader({{"arch", arch}}, ""), Error);
}

TEST(Config, BadValuesNameTheirKey) {
  const std::vector<std::pair<std::string, Json>> cases = {{"hidden_size", -1},
                                                           {"hidden_size", 1.5},
                                                           {"hidden_size", "64"},
                                                           {"hidden_size", 0},
                                                           {"num_hidden_layers", 1u << 30},
                                                           {"num_attention_heads", 7},
                                                           {"num_key_value_heads", 5},
                                                           {"vocab_size", 1e30},
                                                           {"rms_norm_eps", "x"},
                                                           {"rms_norm_eps", -1.0},
                                                           {"rope_theta", 0},
                                                           {"tie_word_embeddings", 1},
                                                           {"rope_scaling", 3},
                                                           {"model_type", 5},
                                                           {"partial_rotary_factor", 2.0},
                                                           {"layer_types", "full_attention"}};
  for (const auto& [key, value] : cases) {
    std::string field;
    EXPECT_EQ(CodeOf(With(Minimal("llama"), {{key, value}}), &field), ErrorCode::kParse) << key;
    EXPECT_EQ(field, "config." + key) << value.dump();
  }
  EXPECT_EQ(CodeOf(With(Minimal("mixtral"), {{"num_experts_per_tok", 9}})), ErrorCode::kParse);
  EXPECT_EQ(CodeOf(With(Minimal("mixtral"), {{"num_local_experts", 8}, {"num_experts", 4}})),
            ErrorCode::kParse);
  EXPECT_EQ(CodeOf(Json::array()), ErrorCode::kParse);
}

TEST(CmfArch, FamilyFilesEqualTheirCheckpoints) {
  for (const char* family :
       {"gemma", "gemma2", "laguna", "qwen2", "qwen2_moe", "qwen3_moe", "looped"}) {
    const std::string name(family);
    const ModelConfig cmf =
        ConfigFromCmfHeader(CmfHeader(golden::Path("cmf/families/" + name + ".cmf")), name);
    const ModelConfig hf =
        ConfigFromHuggingFace(ReadConfig(golden::Path("hf/" + name + "/config.json")), name);
    EXPECT_TRUE(cmf == hf) << ToCmfArch(cmf).dump(1) << "\n" << ToCmfArch(hf).dump(1);
    EXPECT_TRUE(cmf.warnings.list.empty());
  }
  // A family's own epsilon, and the place of a query's parts, existing files do not say.
  for (const char* family : {"kimi_linear", "lfm2_moe", "qwen3_5", "qwen3_5_moe", "qwen3_next"}) {
    const std::string name(family);
    const ModelConfig cmf =
        ConfigFromCmfHeader(CmfHeader(golden::Path("cmf/families/" + name + ".cmf")), name);
    ModelConfig hf =
        ConfigFromHuggingFace(ReadConfig(golden::Path("hf/" + name + "/config.json")), name);
    EXPECT_EQ(cmf.mla.rope_first, hf.has_mla());
    hf.mla.rope_first = cmf.mla.rope_first;
    hf.moe.norm_epsilon = cmf.moe.norm_epsilon;
    hf.mtp_layers = cmf.mtp_layers;  // which a folder's tensors say
    // Their runtime's heads read another state than the models' own references.
    EXPECT_EQ(cmf.mtp_reads_normed, cmf.mtp_layers == 0);
    hf.mtp_reads_normed = cmf.mtp_reads_normed;
    hf.max_position_embeddings = cmf.max_position_embeddings;
    EXPECT_TRUE(cmf == hf) << ToCmfArch(cmf).dump(1) << "\n" << ToCmfArch(hf).dump(1);
  }
}

TEST(CmfArch, UnknownFieldsAreIgnoredWithAWarning) {
  const ModelConfig config =
      ConfigFromCmfHeader(CmfHeader(golden::Path("cmf/files/unknown_header_fields.cmf")), "f");
  ASSERT_EQ(config.warnings.list.size(), 1u);
  EXPECT_NE(config.warnings.list[0].find("zz_unknown_arch_field"), std::string::npos);
}

TEST(CmfArch, BadHeadersHaveTheirClass) {
  for (const char* name : {"hdr_missing_arch", "hdr_negative_size", "hdr_float_layers",
                           "hdr_layers_huge", "hdr_unknown_layer_type", "run_sliding_no_window"}) {
    const Json header = CmfHeader(golden::Path(std::string("cmf/bad/") + name + ".cmf"));
    try {
      ConfigFromCmfHeader(header, name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kParse) << name << ": " << error.what();
    }
  }
}

TEST(CmfArch, PatternWindowYarnAndScalesAreRead) {
  const Json arch = {{"arch_name", "x"},
                     {"hidden_size", 64},
                     {"intermediate_size", 64},
                     {"num_layers", 3},
                     {"num_attention_heads", 4},
                     {"num_kv_heads", 2},
                     {"head_dim", 16},
                     {"vocab_size", 10},
                     {"max_position_embeddings", 100},
                     {"layer_types", {"FullAttention", "FullAttention", "FullAttention"}},
                     {"rms_norm_eps", 1e-5},
                     {"sliding_window", 8},
                     {"sliding_window_pattern", 3},
                     {"rope_local_base_freq", 5000.0},
                     {"yarn",
                      {{"factor", 4.0},
                       {"original_max_position_embeddings", 25},
                       {"attention_factor", 1.25},
                       {"mscale_all_dim", 1.0}}}};
  const ModelConfig config = ConfigFromCmfHeader({{"arch", arch}}, "");
  EXPECT_EQ(config.layers[0].sliding_window, 8u);
  EXPECT_EQ(config.layers[2].sliding_window, 0u);
  EXPECT_EQ(config.ropes[config.layers[0].rope].theta, 5000.0);
  EXPECT_FALSE(config.ropes[config.layers[0].rope].yarn.has_value());
  EXPECT_EQ(config.ropes[config.layers[2].rope].attention_factor, 1.25f);
  const double m = 0.1 * std::log(4.0) + 1.0;
  EXPECT_NEAR(config.attention_scale, 0.25 * m * m, 1e-6);
  ExpectRoundTrip(config);
}

}  // namespace
}  // namespace moewe::model
