// Every family's tensors under one set of names, and the bytes of what was split.
#include "model/canonical.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "golden.h"
#include "memory_checkpoint.h"
#include "model/families.h"
#include "moewe/error.h"

namespace moewe::model {
namespace {

using formats::TensorView;
using Json = nlohmann::ordered_json;
using Shapes = std::map<std::string, std::vector<uint64_t>>;

Json ReadOrdered(const std::filesystem::path& path) { return Json(golden::ReadJson(path)); }

// Which optional tensors a family's layers have, from the published modeling code.
struct Has {
  bool qkv_bias = false;
  bool qk_norm = false;
  bool whole_qk_norm = false;  // over all heads together
  bool post_norms = false;
  bool expert_bias = false;
  bool shared_gate = false;
  bool head_gates = false;
  bool own_experts = false;  // biases of everything, sinks
  bool gates_in_q = false;
};
const std::map<std::string, Has> kHas = {
    {"qwen2", {.qkv_bias = true}},
    {"qwen3", {.qk_norm = true}},
    {"olmoe", {.qk_norm = true, .whole_qk_norm = true}},
    {"qwen2_moe", {.qkv_bias = true, .shared_gate = true}},
    {"qwen3_moe", {.qk_norm = true}},
    {"gemma2", {.post_norms = true}},
    {"gemma3", {.qk_norm = true, .post_norms = true}},
    {"glm4_moe", {.qkv_bias = true, .qk_norm = true, .expert_bias = true}},
    {"minimax_m2", {.qk_norm = true, .whole_qk_norm = true, .expert_bias = true}},
    {"ernie4_5_moe", {.expert_bias = true}},
    {"deepseek_v3", {.expert_bias = true}},
    {"gpt_oss", {.qkv_bias = true, .own_experts = true}},
    {"lfm2_moe", {.qk_norm = true, .expert_bias = true}},
    {"qwen3_next", {.qk_norm = true, .shared_gate = true, .gates_in_q = true}},
    {"qwen3_5", {.qk_norm = true, .gates_in_q = true}},
    {"qwen3_5_moe", {.qk_norm = true, .shared_gate = true, .gates_in_q = true}},
    {"kimi_linear", {.expert_bias = true}},
    {"bailing_hybrid", {.expert_bias = true, .head_gates = true}},
    {"laguna", {.qk_norm = true, .expert_bias = true, .head_gates = true}},
};

// Layers without a router, by the config's own keys.
bool IsDense(const Json& json, const ModelConfig& config, uint32_t layer) {
  if (!config.has_moe) return true;
  for (const Json& dense : json.value("mlp_only_layers", Json::array())) {
    if (dense == layer) return true;
  }
  if (json.contains("mlp_layer_types")) return json["mlp_layer_types"][layer] == "dense";
  if ((layer + 1) % json.value("decoder_sparse_step", 1u) != 0) return true;
  if (layer < json.value("first_k_dense_replace", json.value("num_dense_layers", 0u))) return true;
  return layer < json.value("moe_layer_start_index", 0u) ||
         layer > json.value("moe_layer_end_index", config.num_layers);
}

void AddFfn(const std::string& prefix, uint64_t width, uint64_t hidden, Shapes* shapes) {
  (*shapes)[prefix + "gate_proj.weight"] = {width, hidden};
  (*shapes)[prefix + "up_proj.weight"] = {width, hidden};
  (*shapes)[prefix + "down_proj.weight"] = {hidden, width};
}

void AddMla(const std::string& prefix, const MlaConfig& mla, uint64_t heads, uint64_t hidden,
            Shapes* shapes) {
  const uint64_t q = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim);
  if (mla.q_lora_rank == 0) {
    (*shapes)[prefix + "q_proj.weight"] = {q, hidden};
  } else {
    (*shapes)[prefix + "q_a_proj.weight"] = {mla.q_lora_rank, hidden};
    (*shapes)[prefix + "q_a_layernorm.weight"] = {mla.q_lora_rank};
    (*shapes)[prefix + "q_b_proj.weight"] = {q, mla.q_lora_rank};
  }
  (*shapes)[prefix + "kv_a_proj_with_mqa.weight"] = {mla.kv_lora_rank + mla.qk_rope_head_dim,
                                                     hidden};
  (*shapes)[prefix + "kv_a_layernorm.weight"] = {mla.kv_lora_rank};
  (*shapes)[prefix + "kv_b_proj.weight"] = {heads * (mla.qk_nope_head_dim + mla.v_head_dim),
                                            mla.kv_lora_rank};
  (*shapes)[prefix + "o_proj.weight"] = {hidden, heads * mla.v_head_dim};
}

void AddGatedDeltaNet(const std::string& prefix, const LinearConfig& linear, uint64_t hidden,
                      bool fused, Shapes* shapes) {
  const uint64_t heads = linear.value_heads;
  const uint64_t values = linear.values();
  const uint64_t channels = linear.channels();
  if (fused) {
    (*shapes)[prefix + "in_proj_qkvz.weight"] = {channels + values, hidden};
    (*shapes)[prefix + "in_proj_ba.weight"] = {2 * heads, hidden};
  } else {
    (*shapes)[prefix + "in_proj_qkv.weight"] = {channels, hidden};
    (*shapes)[prefix + "in_proj_z.weight"] = {values, hidden};
    (*shapes)[prefix + "in_proj_a.weight"] = {heads, hidden};
    (*shapes)[prefix + "in_proj_b.weight"] = {heads, hidden};
  }
  (*shapes)[prefix + "conv1d.weight"] = {channels, 1, linear.conv_taps};
  (*shapes)[prefix + "A_log"] = {heads};
  (*shapes)[prefix + "dt_bias"] = {heads};
  (*shapes)[prefix + "norm.weight"] = {linear.value_dim};
  (*shapes)[prefix + "out_proj.weight"] = {hidden, values};
}

// `narrow`: what gates and decays are made through; 0 = they are made at once.
void AddKda(const std::string& prefix, const LinearConfig& linear, uint64_t hidden, uint64_t narrow,
            Shapes* shapes) {
  const uint64_t width = linear.keys();
  for (const char* of : {"q", "k", "v"}) {
    (*shapes)[prefix + of + "_proj.weight"] = {width, hidden};
    (*shapes)[prefix + of + "_conv1d.weight"] = {width, 1, linear.conv_taps};
  }
  for (const char* of : {"f", "g"}) {
    if (narrow == 0) {
      (*shapes)[prefix + of + "_proj.weight"] = {width, hidden};
    } else {
      (*shapes)[prefix + of + "_a_proj.weight"] = {narrow, hidden};
      (*shapes)[prefix + of + "_b_proj.weight"] = {width, narrow};
    }
  }
  (*shapes)[prefix + "b_proj.weight"] = {linear.value_heads, hidden};
  (*shapes)[prefix + "dt_bias"] = {width};
  (*shapes)[prefix + "o_norm.weight"] = {linear.value_dim};
  (*shapes)[prefix + "o_proj.weight"] = {hidden, width};
}

void AddShortConv(const std::string& prefix, uint64_t taps, uint64_t hidden, Shapes* shapes) {
  (*shapes)[prefix + "conv.weight"] = {hidden, 1, taps};
  (*shapes)[prefix + "in_proj.weight"] = {3 * hidden, hidden};
  (*shapes)[prefix + "out_proj.weight"] = {hidden, hidden};
}

void AddAttention(const std::string& p, const Has& has, const LayerConfig& layer, uint64_t hidden,
                  Shapes* shapes) {
  const uint64_t q = uint64_t{layer.num_heads} * layer.head_dim;
  const uint64_t kv = uint64_t{layer.num_kv_heads} * layer.head_dim;
  (*shapes)[p + "q_proj.weight"] = {has.gates_in_q ? 2 * q : q, hidden};
  (*shapes)[p + "k_proj.weight"] = {kv, hidden};
  (*shapes)[p + "v_proj.weight"] = {kv, hidden};
  (*shapes)[p + "o_proj.weight"] = {hidden, q};
  if (has.qkv_bias) {
    (*shapes)[p + "q_proj.bias"] = {q};
    (*shapes)[p + "k_proj.bias"] = {kv};
    (*shapes)[p + "v_proj.bias"] = {kv};
  }
  if (has.qk_norm) {
    (*shapes)[p + "q_norm.weight"] = {has.whole_qk_norm ? q : layer.head_dim};
    (*shapes)[p + "k_norm.weight"] = {has.whole_qk_norm ? kv : layer.head_dim};
  }
}

void AddMixer(const std::string& family, const std::string& p, const ModelConfig& config,
              const LayerConfig& layer, const Has& has, Shapes* shapes) {
  const uint64_t hidden = config.hidden_size;
  switch (layer.mixer) {
    case MixerKind::kAttention:
      AddAttention(p + "self_attn.", has, layer, hidden, shapes);
      break;
    case MixerKind::kMla:
      AddMla(p + "self_attn.", config.mla, layer.num_heads, hidden, shapes);
      break;
    case MixerKind::kGatedDeltaNet:
      return AddGatedDeltaNet(p + "linear_attn.", config.linear, hidden, family == "qwen3_next",
                              shapes);
    case MixerKind::kKda: {
      const bool kimi = family == "kimi_linear";
      AddKda(p + "kda_attn.", config.linear, hidden, kimi ? config.linear.key_dim : 0, shapes);
      const uint64_t heads = config.linear.value_heads;
      (*shapes)[p + "kda_attn.A_log"] =
          kimi ? std::vector<uint64_t>{1, 1, heads, 1} : std::vector<uint64_t>{heads};
      return;
    }
    case MixerKind::kShortConv:
      return AddShortConv(p + "short_conv.", config.linear.conv_taps, hidden, shapes);
  }
  if (has.head_gates) (*shapes)[p + "self_attn.g_proj.weight"] = {layer.num_heads, hidden};
}

Shapes Expected(const std::string& family, const Json& json, const ModelConfig& config) {
  const auto found = kHas.find(family);
  const Has has = found == kHas.end() ? Has{} : found->second;
  const uint64_t hidden = config.hidden_size;
  Shapes shapes = {{"model.embed_tokens.weight", {config.vocab_size, hidden}},
                   {"model.norm.weight", {hidden}}};
  if (!config.tie_word_embeddings) shapes["lm_head.weight"] = {config.vocab_size, hidden};
  for (uint32_t i = 0; i < config.num_layers; ++i) {
    const LayerConfig& layer = config.layers[i];
    const std::string p = "model.layers." + std::to_string(i) + ".";
    shapes[p + "input_layernorm.weight"] = {hidden};
    shapes[p + "post_attention_layernorm.weight"] = {hidden};
    if (has.post_norms) {
      shapes[p + "pre_feedforward_layernorm.weight"] = {hidden};
      shapes[p + "post_feedforward_layernorm.weight"] = {hidden};
    }
    AddMixer(family, p, config, layer, has, &shapes);
    if (has.own_experts) {
      shapes[p + "self_attn.o_proj.bias"] = {hidden};
      shapes[p + "self_attn.sinks"] = {layer.num_heads};
      shapes[p + "mlp.gate.bias"] = {config.moe.num_experts};
      for (uint32_t e = 0; e < config.moe.num_experts; ++e) {
        const std::string expert = p + "mlp.experts." + std::to_string(e) + ".";
        shapes[expert + "gate_proj.bias"] = {config.moe.intermediate_size};
        shapes[expert + "up_proj.bias"] = {config.moe.intermediate_size};
        shapes[expert + "down_proj.bias"] = {hidden};
      }
    }
    if (IsDense(json, config, i)) {
      AddFfn(p + "mlp.", config.intermediate_size, hidden, &shapes);
      continue;
    }
    shapes[p + "mlp.gate.weight"] = {config.moe.num_experts, hidden};
    for (uint32_t e = 0; e < config.moe.num_experts; ++e) {
      AddFfn(p + "mlp.experts." + std::to_string(e) + ".", config.moe.intermediate_size, hidden,
             &shapes);
    }
    if (has.expert_bias) shapes[p + "mlp.expert_bias"] = {config.moe.num_experts};
    if (config.moe.shared_intermediate_size != 0) {
      AddFfn(p + "mlp.shared_expert.", config.moe.shared_intermediate_size, hidden, &shapes);
    }
    if (has.shared_gate) shapes[p + "mlp.shared_expert_gate.weight"] = {1, hidden};
  }
  return shapes;
}

class EveryCheckpoint : public testing::TestWithParam<std::string> {};

TEST_P(EveryCheckpoint, HasExactlyTheCanonicalTensors) {
  const std::string folder = "hf/" + (GetParam() == "nanbeige" ? "looped" : GetParam());
  const Json json = ReadOrdered(golden::Path(folder + "/config.json"));
  MemoryCheckpoint checkpoint(formats::CheckpointKind::kHuggingFace, json);
  checkpoint.AddSafetensors(golden::ReadBytes(golden::Path(folder + "/model.safetensors")));
  const ModelConfig config = ReadConfig(checkpoint);
  std::vector<std::string> warnings;
  Shapes shapes;
  uint64_t bytes = 0;
  for (const TensorView& tensor : CanonicalTensors(checkpoint, config, &warnings)) {
    EXPECT_TRUE(shapes.emplace(tensor.name, tensor.shape).second) << tensor.name;
    uint64_t elements = 1;
    for (const uint64_t size : tensor.shape) elements *= size;
    EXPECT_EQ(tensor.bytes.size(), elements * (tensor.dtype == DType::kF32 ? 4 : 2)) << tensor.name;
    bytes += tensor.bytes.size();
  }
  // A prediction head is carried beside what is expected here; what it repeats of the model is not.
  const size_t head = std::erase_if(
      shapes, [](const auto& entry) { return entry.first.starts_with("model.mtp."); });
  EXPECT_EQ(head != 0, config.mtp_layers != 0 || json.value("num_nextn_predict_layers", 0) != 0);
  const Shapes expected = Expected(GetParam(), json.value("text_config", json), config);
  EXPECT_EQ(shapes, expected);
  EXPECT_TRUE(warnings.empty());
  if (head != 0) return;
  uint64_t source_bytes = 0;
  for (const TensorView& tensor : checkpoint.tensors()) source_bytes += tensor.bytes.size();
  EXPECT_EQ(bytes, source_bytes);
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const FamilyRow& row : Families()) {
    // The golden checkpoint of deepseek is one of vaults.
    if (row.name != "deepseek") names.emplace_back(row.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Families, EveryCheckpoint, testing::ValuesIn(Names()),
                         [](const auto& instance) { return instance.param; });

// --- synthetic checkpoints ---

// hidden 4, 2 query heads and 1 KV head of 2 channels, 1 layer.
MemoryCheckpoint Tiny(const Json& changes = Json::object()) {
  Json json = {{"model_type", "llama"},    {"hidden_size", 4},         {"num_hidden_layers", 1},
               {"num_attention_heads", 2}, {"num_key_value_heads", 1}, {"head_dim", 2},
               {"intermediate_size", 3},   {"vocab_size", 5}};
  json.update(changes);
  return {formats::CheckpointKind::kHuggingFace, json};
}

std::map<std::string, TensorView> Canonical(const MemoryCheckpoint& checkpoint,
                                            std::vector<std::string>* warnings = nullptr) {
  std::map<std::string, TensorView> result;
  for (TensorView& tensor : CanonicalTensors(checkpoint, ReadConfig(checkpoint), warnings)) {
    const std::string name = tensor.name;
    result.emplace(name, std::move(tensor));
  }
  return result;
}

// Checks a view of AddCounting() data: elements first, first + 1, ...
void ExpectCounts(const TensorView& tensor, std::vector<uint64_t> shape, float first) {
  EXPECT_EQ(tensor.shape, shape) << tensor.name;
  for (size_t i = 0; i * 4 < tensor.bytes.size(); ++i) {
    float value = 0.0f;
    std::memcpy(&value, tensor.bytes.data() + i * 4, 4);
    ASSERT_EQ(value, first + static_cast<float>(i)) << tensor.name << " element " << i;
  }
  EXPECT_EQ(tensor.file_offset, static_cast<uint64_t>(first) * 4);
  EXPECT_EQ(tensor.hash, 0u);
}

void ExpectRefused(const MemoryCheckpoint& checkpoint, ErrorCode code, const std::string& name) {
  try {
    Canonical(checkpoint);
    ADD_FAILURE() << name << " was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_EQ(error.where().field, name);
  }
}

TEST(Canonical, SplitsFusedProjections) {
  MemoryCheckpoint checkpoint = Tiny();
  checkpoint.AddCounting("model.layers.0.self_attn.qkv_proj.weight", {8, 4});
  checkpoint.AddCounting("model.layers.0.self_attn.qkv_proj.bias", {8});
  checkpoint.AddCounting("model.layers.0.mlp.gate_up_proj.weight", {6, 4});
  auto tensors = Canonical(checkpoint);
  ASSERT_EQ(tensors.size(), 8u);
  const std::string p = "model.layers.0.";
  ExpectCounts(tensors.at(p + "self_attn.q_proj.weight"), {4, 4}, 0);
  ExpectCounts(tensors.at(p + "self_attn.k_proj.weight"), {2, 4}, 16);
  ExpectCounts(tensors.at(p + "self_attn.v_proj.weight"), {2, 4}, 24);
  ExpectCounts(tensors.at(p + "self_attn.q_proj.bias"), {4}, 0);
  ExpectCounts(tensors.at(p + "self_attn.k_proj.bias"), {2}, 4);
  ExpectCounts(tensors.at(p + "self_attn.v_proj.bias"), {2}, 6);
  ExpectCounts(tensors.at(p + "mlp.gate_proj.weight"), {3, 4}, 0);
  ExpectCounts(tensors.at(p + "mlp.up_proj.weight"), {3, 4}, 12);
}

TEST(Canonical, SplitsExpertBanksInBothSpellings) {
  for (const bool granite : {false, true}) {
    MemoryCheckpoint checkpoint = Tiny({{"model_type", "mixtral"}, {"num_local_experts", 2}});
    const std::string p = "model.layers.0.";
    checkpoint.AddCounting(
        p + (granite ? "block_sparse_moe.input_linear.weight" : "mlp.experts.gate_up_proj"),
        {2, 6, 4});
    checkpoint.AddCounting(
        p + (granite ? "block_sparse_moe.output_linear.weight" : "mlp.experts.down_proj"),
        {2, 4, 3});
    auto tensors = Canonical(checkpoint);
    ASSERT_EQ(tensors.size(), 6u);
    ExpectCounts(tensors.at(p + "mlp.experts.0.gate_proj.weight"), {3, 4}, 0);
    ExpectCounts(tensors.at(p + "mlp.experts.0.up_proj.weight"), {3, 4}, 12);
    ExpectCounts(tensors.at(p + "mlp.experts.1.gate_proj.weight"), {3, 4}, 24);
    ExpectCounts(tensors.at(p + "mlp.experts.1.up_proj.weight"), {3, 4}, 36);
    ExpectCounts(tensors.at(p + "mlp.experts.0.down_proj.weight"), {4, 3}, 0);
    ExpectCounts(tensors.at(p + "mlp.experts.1.down_proj.weight"), {4, 3}, 12);
  }
}

TEST(Canonical, MultimodalPrefixesAndTowers) {
  for (const std::string prefix : {"language_model.model.", "model.language_model."}) {
    MemoryCheckpoint checkpoint = Tiny();
    checkpoint.AddCounting(prefix + "embed_tokens.weight", {5, 4});
    checkpoint.AddCounting(prefix + "layers.0.input_layernorm.weight", {4});
    checkpoint.AddCounting("language_model.lm_head.weight", {5, 4});
    checkpoint.AddCounting("vision_tower.vision_model.embeddings.weight", {5, 4});
    checkpoint.AddCounting("model.vision_tower.x", {5, 4});
    checkpoint.AddCounting("multi_modal_projector.mm_input_projection_weight", {5, 4});
    std::vector<std::string> warnings;
    const auto tensors = Canonical(checkpoint, &warnings);
    EXPECT_EQ(tensors.size(), 3u);
    EXPECT_TRUE(tensors.contains("model.embed_tokens.weight"));
    EXPECT_TRUE(tensors.contains("model.layers.0.input_layernorm.weight"));
    EXPECT_TRUE(tensors.contains("lm_head.weight"));
    EXPECT_EQ(warnings.size(), 2u);
  }
}

TEST(Canonical, PredictionHeadsAreCarried) {
  MemoryCheckpoint appended = Tiny();
  for (const char* name : {"eh_proj", "enorm", "hnorm", "shared_head.norm", "shared_head.head",
                           "embed_tokens", "input_layernorm", "self_attn.q_proj"}) {
    appended.AddCounting(std::string("model.layers.1.") + name + ".weight", {4, 4});
  }
  const auto from_layer = Canonical(appended);
  MemoryCheckpoint qwen = Tiny();
  for (const char* name : {"fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm",
                           "layers.0.input_layernorm", "layers.0.self_attn.q_proj"}) {
    qwen.AddCounting(std::string("mtp.") + name + ".weight", {4, 4});
  }
  const auto from_mtp = Canonical(qwen);
  const std::set<std::string> expected = {"model.mtp.eh_proj.weight",
                                          "model.mtp.enorm.weight",
                                          "model.mtp.hnorm.weight",
                                          "model.mtp.norm.weight",
                                          "model.mtp.layers.0.input_layernorm.weight",
                                          "model.mtp.layers.0.self_attn.q_proj.weight"};
  for (const auto* tensors : {&from_layer, &from_mtp}) {
    std::set<std::string> names;
    for (const auto& [name, tensor] : *tensors) names.insert(name);
    EXPECT_EQ(names, expected);
  }
  for (const MemoryCheckpoint* checkpoint : {&appended, &qwen}) {
    const Json arch = ToCmfArch(ReadConfig(*checkpoint));
    EXPECT_EQ(arch["mtp"]["num_layers"], 1);
    EXPECT_TRUE(ConfigFromCmfHeader({{"arch", arch}}, "") == ReadConfig(*checkpoint));
  }
}

// A file has the layers that its config counts; only what is marked as a prediction head may
// follow.
TEST(Canonical, LayersBeyondTheConfigsAreAContradiction) {
  MemoryCheckpoint checkpoint = Tiny();
  checkpoint.AddCounting("model.layers.0.input_layernorm.weight", {4});
  checkpoint.AddCounting("model.layers.1.input_layernorm.weight", {4});
  ExpectRefused(checkpoint, ErrorCode::kParse, "model.layers.1.input_layernorm.weight");
  MemoryCheckpoint gap = Tiny();
  gap.AddCounting("model.layers.0.input_layernorm.weight", {4});
  gap.AddCounting("model.layers.7.input_layernorm.weight", {4});
  ExpectRefused(gap, ErrorCode::kParse, "model.layers.7.input_layernorm.weight");
  // A second head is one more than moewe carries, and is told.
  MemoryCheckpoint heads = Tiny();
  for (const std::string layer : {"model.layers.1.", "model.layers.2."}) {
    heads.AddCounting(layer + "eh_proj.weight", {4, 8});
    heads.AddCounting(layer + "input_layernorm.weight", {4});
  }
  std::vector<std::string> warnings;
  EXPECT_EQ(Canonical(heads, &warnings).size(), 2u);
  EXPECT_EQ(warnings.size(), 1u);
}

TEST(Canonical, TiedHeadIsDroppedOnlyIfItRepeatsTheEmbedding) {
  MemoryCheckpoint same = Tiny({{"tie_word_embeddings", true}});
  same.AddCounting("model.embed_tokens.weight", {5, 4});
  same.AddCounting("lm_head.weight", {5, 4});
  EXPECT_EQ(Canonical(same).size(), 1u);
  MemoryCheckpoint other = Tiny({{"tie_word_embeddings", true}});
  other.AddCounting("model.embed_tokens.weight", {5, 4});
  other.Add("lm_head.weight", DType::kF32, {5, 4}, std::vector<uint8_t>(80));
  EXPECT_EQ(Canonical(other).size(), 2u);
  const ModelConfig config = ReadConfig(other);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_EQ(config.warnings.list.size(), 1u);
}

TEST(Canonical, IgnoresStoredFrequencies) {
  MemoryCheckpoint checkpoint = Tiny();
  checkpoint.AddCounting("model.layers.0.self_attn.rotary_emb.inv_freq", {1});
  checkpoint.AddCounting("model.rotary_emb.inv_freq", {1});
  EXPECT_TRUE(Canonical(checkpoint).empty());
}

TEST(Canonical, RefusesWhatItDoesNotKnow) {
  for (const std::string name :
       {"model.layers.0.self_attn.sink_bias", "model.layers.0.self_attn.gate_proj.weight",
        "model.layers.0.mlp.gate_proj.bias", "model.layers.0.mlp.experts.x.w1.weight",
        "model.layers.0.self_attn.q_proj.qweight", "model.layers.0", "score.weight",
        "model.layers.0.mlp.experts.99999999999.w1.weight", "language_model.mtp.fc.weight", ""}) {
    MemoryCheckpoint checkpoint = Tiny();
    checkpoint.AddCounting(name, {2, 2});
    ExpectRefused(checkpoint, ErrorCode::kUnsupported, name);
  }
  MemoryCheckpoint cmf(formats::CheckpointKind::kCmf, {{"arch", ToCmfArch(ReadConfig([] {
                                                          MemoryCheckpoint tiny = Tiny();
                                                          tiny.AddCounting("x", {1});
                                                          return tiny;
                                                        }()))}});
  cmf.AddCounting("skill.code.model.layers.0.mlp.up_proj.weight", {3, 4});
  EXPECT_TRUE(Canonical(cmf).empty());
  cmf.AddCounting("model.layers.0.self_attn.gate_proj.weight", {2, 4});
  ExpectRefused(cmf, ErrorCode::kUnsupported, "model.layers.0.self_attn.gate_proj.weight");
}

TEST(Canonical, RefusesShapesThatDoNotFit) {
  const std::string p = "model.layers.0.";
  const std::vector<std::pair<std::string, std::vector<uint64_t>>> cases = {
      {p + "self_attn.qkv_proj.weight", {9, 4}},
      {p + "self_attn.qkv_proj.weight", {8}},
      {p + "mlp.gate_up_proj.weight", {5, 4}},
      {p + "mlp.experts.gate_up_proj", {6, 4}},
      {p + "mlp.experts.gate_up_proj", {2, 6, 5}},
      {p + "mlp.experts.gate_up_proj", {2, 5, 4}},
      {p + "mlp.experts.down_proj", {2, 3, 4}},
      {p + "mlp.experts.down_proj", {1u << 30, 0, 4}},
      {p + "mlp.gate.e_score_correction_bias", {2, 2}}};
  for (const auto& [name, shape] : cases) {
    MemoryCheckpoint checkpoint = Tiny();
    checkpoint.AddCounting(name, shape);
    ExpectRefused(checkpoint, ErrorCode::kParse, name);
  }
}

TEST(Canonical, RefusesTwoTensorsOfOneRole) {
  MemoryCheckpoint checkpoint = Tiny();
  checkpoint.AddCounting("model.layers.0.mlp.gate.weight", {2, 4});
  checkpoint.AddCounting("model.layers.0.block_sparse_moe.gate.weight", {2, 4});
  ExpectRefused(checkpoint, ErrorCode::kParse, "model.layers.0.block_sparse_moe.gate.weight");
}

TEST(Canonical, MoreLayersThanTensorsIsALie) {
  MemoryCheckpoint checkpoint = Tiny({{"num_hidden_layers", 4000}});
  checkpoint.AddCounting("model.norm.weight", {4});
  EXPECT_THROW(ReadConfig(checkpoint), Error);
}

}  // namespace
}  // namespace moewe::model
