// Unusual checkpoints made into vaults: each case of tests/golden/smoe/sculptor_cases.json, whose
// results are the published program's. Where moewe does otherwise, the case says what it does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "golden.h"
#include "program.h"

namespace moewe {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// --- the checkpoints ---

enum class Experts { kPlain, kMixtral, kStacked };

// What a case changes about a model of two layers with four experts each, all 64 wide.
struct Input {
  json config = json::object();  // null = without that key
  size_t layers = 2;
  size_t experts = 4;
  std::set<size_t> dense = {};               // layers without experts
  std::map<size_t, size_t> experts_of = {};  // layers with another number
  Experts names = Experts::kPlain;
  std::set<std::string> missing = {};  // tensors
  std::set<std::string> extra = {};    // tensors that no model has
  std::string without = {};            // file of the folder
  std::string flags = {};

  json Config() const {
    json whole = {{"model_type", "qwen3_moe"},   {"hidden_size", 64},
                  {"intermediate_size", 128},    {"moe_intermediate_size", 64},
                  {"num_hidden_layers", layers}, {"num_attention_heads", 2},
                  {"num_key_value_heads", 2},    {"head_dim", 32},
                  {"num_experts", experts},      {"num_experts_per_tok", 2},
                  {"norm_topk_prob", true},      {"rope_theta", 500000.0},
                  {"rms_norm_eps", 1e-6},        {"vocab_size", 32},
                  {"hidden_act", "silu"}};
    for (const auto& [key, value] : config.items()) {
      whole[key] = value;
      if (value.is_null()) whole.erase(key);
    }
    return whole;
  }

  std::string Weights() const {
    std::vector<std::pair<std::string, std::vector<size_t>>> tensors = {
        {"model.embed_tokens.weight", {32, 64}},
        {"lm_head.weight", {32, 64}},
        {"model.norm.weight", {64}}};
    for (size_t i = 0; i < layers; ++i) AddLayer(i, &tensors);
    for (const std::string& name : extra) tensors.push_back({name, {64, 64}});
    std::erase_if(tensors, [&](const auto& tensor) { return missing.contains(tensor.first); });
    std::mt19937 random(11);
    nlohmann::ordered_json header;
    std::string data;
    for (const auto& [name, shape] : tensors) {
      size_t count = 1;
      for (const size_t size : shape) count *= size;
      const size_t begin = data.size();
      for (size_t i = 0; i < count; ++i) {
        const float value =
            shape.size() == 1 ? 1.0f : static_cast<float>(random() % 2001) / 5000.0f - 0.2f;
        data.append(reinterpret_cast<const char*>(&value), sizeof(value));
      }
      header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {begin, data.size()}}};
    }
    const std::string text = header.dump();
    const uint64_t length = text.size();
    return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text + data;
  }

 private:
  using Tensors = std::vector<std::pair<std::string, std::vector<size_t>>>;

  void AddLayer(size_t index, Tensors* tensors) const {
    const std::string layer = "model.layers." + std::to_string(index) + ".";
    for (const char* role : {"q", "k", "v", "o"}) {
      tensors->push_back({layer + "self_attn." + role + "_proj.weight", {64, 64}});
    }
    tensors->push_back({layer + "input_layernorm.weight", {64}});
    tensors->push_back({layer + "post_attention_layernorm.weight", {64}});
    if (dense.contains(index)) {
      tensors->push_back({layer + "mlp.gate_proj.weight", {128, 64}});
      tensors->push_back({layer + "mlp.up_proj.weight", {128, 64}});
      tensors->push_back({layer + "mlp.down_proj.weight", {64, 128}});
      return;
    }
    const size_t count = experts_of.contains(index) ? experts_of.at(index) : experts;
    const std::string mlp = layer + (names == Experts::kMixtral ? "block_sparse_moe." : "mlp.");
    tensors->push_back({mlp + "gate.weight", {count, 64}});
    if (names == Experts::kStacked) {
      tensors->push_back({mlp + "experts.gate_up_proj", {count, 128, 64}});
      tensors->push_back({mlp + "experts.down_proj", {count, 64, 64}});
      return;
    }
    const char* const plain[] = {"gate_proj", "up_proj", "down_proj"};
    const char* const numbered[] = {"w1", "w3", "w2"};
    for (size_t e = 0; e < count; ++e) {
      for (const char* name : names == Experts::kMixtral ? numbered : plain) {
        tensors->push_back(
            {mlp + "experts." + std::to_string(e) + "." + name + ".weight", {64, 64}});
      }
    }
  }
};

const json kDeepSeek = {
    {"model_type", "deepseek"}, {"n_routed_experts", 4}, {"num_experts", nullptr}};

json With(json config, const json& more) {
  config.update(more);
  return config;
}

Input InputOf(const std::string& id) {
  const std::map<std::string, Input> inputs = {
      {"mixtral_names", {.names = Experts::kMixtral}},
      {"fused_3d_experts", {.names = Experts::kStacked}},
      {"no_config", {.without = "config.json"}},
      {"hidden_act_gelu", {.config = {{"hidden_act", "gelu"}}}},
      {"no_safetensors", {.without = "model.safetensors"}},
      {"no_num_attention_heads", {.config = {{"num_attention_heads", nullptr}}}},
      {"rope_parameters_only",
       {.config = {{"rope_theta", nullptr},
                   {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 500000.0}}}}}},
      {"rope_scaling_yarn",
       {.config = {{"rope_scaling",
                    {{"rope_type", "yarn"},
                     {"factor", 4.0},
                     {"original_max_position_embeddings", 32}}}}}},
      {"no_top_k", {.config = {{"num_experts_per_tok", nullptr}}}},
      {"no_norm_topk", {.config = {{"norm_topk_prob", nullptr}}}},
      {"no_eps", {.config = {{"rms_norm_eps", nullptr}}}},
      {"no_head_dim_no_kv", {.config = {{"head_dim", nullptr}, {"num_key_value_heads", nullptr}}}},
      {"unknown_model_type", {.config = {{"model_type", "a_model_type_with_a_very_long_name"}}}},
      {"no_model_type", {.config = {{"model_type", nullptr}}}},
      {"shared_by_config", {.config = With(kDeepSeek, {{"n_shared_experts", 2}})}},
      {"qwen2_shared_size",
       {.config = {{"model_type", "qwen2_moe"}, {"shared_expert_intermediate_size", 128}}}},
      {"deepseek_v2_mla",
       {.config = With(kDeepSeek, {{"model_type", "deepseek_v2"}, {"kv_lora_rank", 16}})}},
      {"two_dense_layers",
       {.config = With(kDeepSeek, {{"first_k_dense_replace", 2}}), .layers = 4, .dense = {0, 1}}},
      {"dense_in_the_middle", {.layers = 3, .dense = {1}}},
      {"missing_expert_tensor", {.missing = {"model.layers.1.mlp.experts.2.up_proj.weight"}}},
      {"uneven_experts", {.experts_of = {{0, 2}}}},
      {"no_embed", {.missing = {"model.embed_tokens.weight"}}},
      {"group_size_32", {.flags = "--group-size 32"}},
      {"max_layers_1_experts_2", {.flags = "--max-layers 1 --max-experts 2"}},
      {"bits_3", {.flags = "--bits 3"}},
      {"v1_90_experts", {.layers = 3, .experts = 30}},
      {"upgrade_90_experts_no_room", {.layers = 3, .experts = 30}},
      {"v2_90_experts", {.layers = 3, .experts = 30}},
  };
  return inputs.at(id);
}

// Cases that the published program refuses and moewe takes: names of experts that it knows, too.
const std::set<std::string> kTaken = {"mixtral_names", "fused_3d_experts"};

// And the other way round, with what the message says: no model that could run would come of them.
const std::map<std::string, std::string> kRefused = {
    {"no_top_k", "num_experts_per_tok is 8, of 4 experts"},
    {"deepseek_v2_mla", "norm_topk_prob"},
    {"no_embed", "model.embed_tokens.weight"},
    {"group_size_32", "--group-size"},
    {"max_layers_1_experts_2", "--max-layers"},
};

// What the message names where both refuse.
const std::map<std::string, std::string> kNamed = {
    {"no_config", "config.json"},
    {"hidden_act_gelu", "hidden_act"},
    {"no_safetensors", "safetensors"},
    {"no_num_attention_heads", "num_attention_heads"},
    {"missing_expert_tensor", "model.layers.1.mlp.experts.2.up_proj.weight"},
    {"bits_3", "--bits"},
};

// --- what lies in a vault ---

// Fields one after the other, by the format's document.
class Fields {
 public:
  Fields(const std::vector<uint8_t>& bytes, size_t at) : at_(bytes.data() + at) {}

  template <typename T>
  T Next() {
    T value;
    std::memcpy(&value, at_, sizeof(value));
    at_ += sizeof(value);
    return value;
  }
  std::string Text(size_t size) {
    std::string text(reinterpret_cast<const char*>(at_), size);
    at_ += size;
    return text;
  }

 private:
  const uint8_t* at_;
};

json HeaderOf(const std::vector<uint8_t>& bytes) {
  Fields fields(bytes, 8);
  json header;
  for (const char* key : {"version", "num_moe_layers", "max_experts_per_layer", "total_experts"}) {
    header[key] = fields.Next<uint32_t>();
  }
  for (const char* key : {"table_offset", "data_offset"}) header[key] = fields.Next<uint64_t>();
  for (const char* key :
       {"group_size", "bits", "d_model", "vocab_size", "ffn_dim", "reserved_ext"}) {
    header[key] = fields.Next<uint32_t>();
  }
  return header;
}

json ArchOf(const std::vector<uint8_t>& bytes, size_t at) {
  Fields fields(bytes, at);
  json arch;
  arch["magic"] = fields.Text(4);
  for (const char* key : {"block_version", "block_size", "flags"}) {
    arch[key] = fields.Next<uint32_t>();
  }
  arch["rope_theta"] = fields.Next<float>();
  for (const char* key :
       {"num_heads", "num_kv_heads", "head_dim", "moe_top_k", "moe_ffn_dim", "dense_ffn_dim",
        "shared_expert_ffn_dim", "activation", "num_hidden_layers"}) {
    arch[key] = fields.Next<uint32_t>();
  }
  arch["rms_norm_eps"] = fields.Next<float>();
  const std::string type = fields.Text(24);
  arch["model_type"] = type.substr(0, type.find('\0'));
  return arch;
}

// layer, expert, group size, groups, offset, size, padded size of the first `count` experts.
json EntriesOf(const std::vector<uint8_t>& bytes, size_t count) {
  json entries = json::array();
  for (size_t i = 0; i < count; ++i) {
    Fields fields(bytes, 64 + 48 * i);
    const auto layer = fields.Next<uint32_t>();
    const auto expert = fields.Next<uint32_t>();
    const auto offset = fields.Next<uint64_t>();
    const auto size = fields.Next<uint64_t>();
    const auto padded = fields.Next<uint64_t>();
    const auto group_size = fields.Next<uint32_t>();
    const auto groups = fields.Next<uint64_t>();
    entries.push_back({layer, expert, group_size, groups, offset, size, padded});
  }
  return entries;
}

// As a v1 vault of the same experts: no arch block, the blobs as early as the tables allow.
std::vector<uint8_t> AsV1(const std::vector<uint8_t>& v2) {
  const json header = HeaderOf(v2);
  const size_t experts = header["total_experts"];
  const size_t tables = 64 + experts * (48 + 3 * 44);
  const size_t old_data = header["data_offset"];
  const size_t data = (tables + 16383) / 16384 * 16384;
  std::vector<uint8_t> v1(v2.begin(), v2.begin() + static_cast<ptrdiff_t>(tables));
  v1.resize(data);
  v1.insert(v1.end(), v2.begin() + static_cast<ptrdiff_t>(old_data), v2.end());
  const auto put = [&](size_t at, auto value) { std::memcpy(&v1[at], &value, sizeof(value)); };
  put(8, uint32_t{1});
  put(32, uint64_t{data});
  put(60, uint32_t{0});
  for (size_t i = 0; i < experts; ++i) {
    uint64_t offset = 0;
    std::memcpy(&offset, &v1[64 + 48 * i + 8], sizeof(offset));
    put(64 + 48 * i + 8, uint64_t{offset - old_data + data});
  }
  return v1;
}

// --- the cases ---

class Sculptor : public testing::Test {
 protected:
  std::string At(const std::string& name) const { return folder_.At(name); }
  std::string Vault() const { return At("m.smoe"); }

  // Standard error and exit code of the conversion.
  Outcome Convert(const Input& input) const {
    if (input.without != "model.safetensors") folder_.Put("m/model.safetensors", input.Weights());
    if (input.without != "config.json") folder_.Put("m/config.json", input.Config().dump());
    return RunShell("$MOEWE convert " + At("m") + " " + Vault() + " " + input.flags +
                    " 2>&1 >/dev/null");
  }

  void ExpectRefused(const Input& input, const std::string& named) const {
    const Outcome outcome = Convert(input);
    EXPECT_GT(outcome.code, 0) << outcome.out;
    EXPECT_NE(outcome.out.find(named), std::string::npos) << outcome.out;
    for (const auto& left : fs::directory_iterator(At(""))) {
      EXPECT_EQ(left.path().filename(), "m") << "was left behind";
    }
  }

  void ExpectRuns() const {
    EXPECT_EQ(RunMoewe("verify " + Vault()).code, 0);
    EXPECT_EQ(RunMoewe("logits " + Vault() + " --ids 1,2,3 --out " + At("out")).code, 0);
  }

  ScratchFolder folder_;
};

class SculptorCase : public Sculptor, public testing::WithParamInterface<json> {
 protected:
  std::string Id() const { return GetParam().at("id"); }

  void ExpectGolden(const std::vector<uint8_t>& bytes) const {
    const json header = HeaderOf(bytes);
    for (const auto& [key, value] : GetParam().at("header").items()) {
      if (key == "magic") continue;
      EXPECT_EQ(header.at(key), value) << key;
    }
    if (!GetParam().at("arch").is_null()) {
      const json arch = ArchOf(bytes, header["reserved_ext"]);
      for (const auto& [key, value] : GetParam()["arch"].items()) {
        if (key == "flags_decoded" || key == "reserved_all_zero") continue;
        // The published program reads the older of the two spellings alone.
        const bool spelled_new = Id() == "rope_parameters_only" && key == "rope_theta";
        EXPECT_EQ(arch.at(key), spelled_new ? json(500000.0) : value) << key;
      }
    }
    const json& entries = GetParam().at("entries");
    EXPECT_EQ(EntriesOf(bytes, entries.size()), entries);
  }
};

TEST_P(SculptorCase, IsMadeOrRefused) {
  if (kRefused.contains(Id())) return ExpectRefused(InputOf(Id()), kRefused.at(Id()));
  if (kNamed.contains(Id())) {
    ASSERT_NE(GetParam().at("exit_code"), 0);
    return ExpectRefused(InputOf(Id()), kNamed.at(Id()));
  }
  Input input = InputOf(Id());
  // A key in the Scout would be that of the vault before it is made one of version 1.
  if (Id() == "upgrade_90_experts_no_room") input.flags += " --plain-scout";
  const Outcome made = Convert(input);
  ASSERT_EQ(made.code, 0) << made.out;
  if (Id() == "v1_90_experts") return ExpectGolden(AsV1(golden::ReadBytes(Vault())));
  if (Id() == "upgrade_90_experts_no_room") {
    const std::vector<uint8_t> v1 = AsV1(golden::ReadBytes(Vault()));
    folder_.Put("m.smoe", {v1.begin(), v1.end()});
    const Outcome upgrade = RunShell("$MOEWE vault upgrade " + Vault() + " --config " + At("m") +
                                     " --scout " + At("m.scout.safetensors") + " 2>&1");
    EXPECT_EQ(upgrade.code, 3);
    EXPECT_NE(upgrade.out.find("no room"), std::string::npos) << upgrade.out;
    EXPECT_EQ(golden::ReadBytes(Vault()), v1);
    return;
  }
  ExpectRuns();
  if (kTaken.contains(Id())) return;
  ASSERT_EQ(GetParam().at("exit_code"), 0);
  const bool warned = made.out.find("warning: model_type") != std::string::npos;
  EXPECT_EQ(warned, !GetParam().at("messages").empty()) << made.out;
  ExpectGolden(golden::ReadBytes(Vault()));
}

// Of an unknown type every key that could change the math must be understood, and every tensor have
// a place.
TEST_F(Sculptor, UnknownModelTypes) {
  const json type = {{"model_type", "new_moe"}};
  ExpectRefused({.config = With(type, {{"router_twist", 0.5}})}, "router_twist");
  ExpectRefused({.config = With(type, {{"routed_scaling_factor", 2.5}})}, "routed_scaling_factor");
  ExpectRefused({.config = With(type, {{"sliding_window", 16}})}, "sliding_window");
  ExpectRefused({.config = With(type, {{"num_experts_per_tok", nullptr}})}, "num_experts_per_tok");
  ExpectRefused({.config = type, .extra = {"model.layers.1.mlp.twist.weight"}}, "mlp.twist");
  ExpectRefused({.config = type, .extra = {"model.twist.weight"}}, "model.twist");
  ExpectRefused({.config = {{"model_type", "deepseek_v32"}}}, "deepseek_v32");  // known, not run
  const json harmless = {{"routed_scaling_factor", 1.0},
                         {"use_sliding_window", false},
                         {"sliding_window", 16},
                         {"num_experts_per_tok", nullptr},
                         {"moe_top_k", 3},
                         {"torch_dtype", "bfloat16"}};
  const Outcome made = Convert({.config = With(type, harmless)});
  EXPECT_EQ(made.code, 0) << made.out;
  EXPECT_NE(made.out.find("warning: model_type 'new_moe'"), std::string::npos) << made.out;
  EXPECT_EQ(ArchOf(golden::ReadBytes(Vault()), 1536).at("moe_top_k"), 3);
  ExpectRuns();
}

// A config that leaves out its KV heads has what its projections have.
TEST_F(Sculptor, KvHeadsThatTheConfigLeavesOut) {
  for (const char* family : {"qwen3_moe", "deepseek", "mixtral", "new_moe"}) {
    json config = {{"model_type", family}, {"num_key_value_heads", nullptr}};
    if (family == std::string("deepseek")) config = With(kDeepSeek, config);
    // Eight heads, which the default of qwen3_moe, four, divides.
    Input input = {.config = With(config, {{"num_attention_heads", 8}, {"head_dim", 8}})};
    if (family == std::string("mixtral")) {
      input.names = Experts::kMixtral;
      input.config["intermediate_size"] = 64;  // which is that of its experts
    }
    const Outcome made = Convert(input);
    EXPECT_EQ(made.code, 0) << family << ": " << made.out;
    EXPECT_EQ(ArchOf(golden::ReadBytes(Vault()), 1536).at("num_kv_heads"), 8);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Golden, SculptorCase,
    testing::ValuesIn(
        golden::ReadJson(golden::Path("smoe/sculptor_cases.json")).get<std::vector<json>>()),
    [](const auto& instance) { return instance.param.at("id").template get<std::string>(); });

}  // namespace
}  // namespace moewe
