// What a config says of a model must be what its tensors are.
#include "model/weights.h"

#include <gtest/gtest.h>

#include <string>

#include "memory_checkpoint.h"
#include "moewe/error.h"

namespace moewe::model {
namespace {

using Json = nlohmann::ordered_json;
using formats::CheckpointKind;

// 2 layers of 2 query heads and 1 KV head of 4 channels, hidden 6; the second layer has 3 experts
// of 5 neurons and a shared one of 7, the first a dense FFN of 10.
Json Config() {
  return {{"model_type", "qwen2_moe"},
          {"hidden_size", 6},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 1},
          {"head_dim", 4},
          {"intermediate_size", 10},
          {"moe_intermediate_size", 5},
          {"num_experts", 3},
          {"num_experts_per_tok", 2},
          {"vocab_size", 11},
          {"shared_expert_intermediate_size", 7},
          {"tie_word_embeddings", false},
          {"mlp_only_layers", Json::array({0})}};
}

void AddFfn(const std::string& prefix, uint64_t width, MemoryCheckpoint* checkpoint) {
  checkpoint->AddCounting(prefix + "gate_proj.weight", {width, 6});
  checkpoint->AddCounting(prefix + "up_proj.weight", {width, 6});
  checkpoint->AddCounting(prefix + "down_proj.weight", {6, width});
}

MemoryCheckpoint Checkpoint(CheckpointKind kind, const Json& config) {
  MemoryCheckpoint checkpoint(kind, config);
  checkpoint.AddCounting("model.embed_tokens.weight", {11, 6});
  checkpoint.AddCounting("model.norm.weight", {6});
  checkpoint.AddCounting("lm_head.weight", {11, 6});
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    for (const char* norm : {"input_layernorm.weight", "post_attention_layernorm.weight"}) {
      checkpoint.AddCounting(layer + norm, {6});
    }
    checkpoint.AddCounting(layer + "self_attn.q_proj.weight", {8, 6});
    checkpoint.AddCounting(layer + "self_attn.k_proj.weight", {4, 6});
    checkpoint.AddCounting(layer + "self_attn.v_proj.weight", {4, 6});
    checkpoint.AddCounting(layer + "self_attn.o_proj.weight", {6, 8});
  }
  AddFfn("model.layers.0.mlp.", 10, &checkpoint);
  checkpoint.AddCounting("model.layers.1.mlp.gate.weight", {3, 6});
  for (const char* expert : {"0", "1", "2"}) {
    AddFfn(std::string("model.layers.1.mlp.experts.") + expert + ".", 5, &checkpoint);
  }
  AddFfn("model.layers.1.mlp.shared_expert.", 7, &checkpoint);
  checkpoint.AddCounting("model.layers.1.mlp.shared_expert_gate.weight", {1, 6});
  return checkpoint;
}

void Bind(const MemoryCheckpoint& checkpoint) {
  BindWeights(checkpoint, ReadConfig(checkpoint), TensorHashes::kIgnore);
}

TEST(WeightsTest, AConfigThatTheTensorsContradictIsRefused) {
  EXPECT_NO_THROW(Bind(Checkpoint(CheckpointKind::kHuggingFace, Config())));
  const std::pair<const char*, uint32_t> lies[] = {
      {"hidden_size", 8},
      {"num_hidden_layers", 1},
      {"num_hidden_layers", 3},
      {"num_attention_heads", 1},
      {"num_attention_heads", 4},
      {"num_key_value_heads", 2},
      {"head_dim", 2},
      {"vocab_size", 10},
      {"vocab_size", 12},
      {"intermediate_size", 9},
      {"moe_intermediate_size", 4},
      {"num_experts", 2},
      {"num_experts", 4},
      {"num_experts", 0},
      {"shared_expert_intermediate_size", 8},
  };
  for (const auto& [key, value] : lies) {
    Json config = Config();
    config[key] = value;
    try {
      Bind(Checkpoint(CheckpointKind::kHuggingFace, config));
      ADD_FAILURE() << key << " " << value << " was believed";
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == ErrorCode::kParse || error.code() == ErrorCode::kMissingTensor)
          << key << ": " << error.what();
      EXPECT_NE(error.where().field, "") << key;
    }
  }
}

// Whatever container: what has no place in the model is no part of it, and is named.
TEST(WeightsTest, ATensorWithoutAPlaceIsRefused) {
  const Json arch = ToCmfArch(ReadConfig(Checkpoint(CheckpointKind::kHuggingFace, Config())));
  for (const CheckpointKind kind : {CheckpointKind::kHuggingFace, CheckpointKind::kCmf}) {
    const Json config = kind == CheckpointKind::kCmf ? Json{{"arch", arch}} : Config();
    for (const char* name :
         {"model.embed_scale.weight", "lm_head.bias", "model.layers.0.self_attn.rotary_emb.scale",
          "model.layers.1.mlp.experts.3.gate_proj.weight",
          "model.layers.0.mlp.shared_expert.gate_proj.weight"}) {
      MemoryCheckpoint checkpoint = Checkpoint(kind, config);
      checkpoint.AddCounting(name, {5, 6});
      try {
        Bind(checkpoint);
        ADD_FAILURE() << name << " was ignored";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
        EXPECT_EQ(error.where().field, name);
      }
    }
    if (kind == CheckpointKind::kCmf) continue;
    MemoryCheckpoint harmless = Checkpoint(kind, config);
    harmless.AddCounting("model.layers.0.self_attn.rotary_emb.inv_freq", {2});
    EXPECT_NO_THROW(Bind(harmless));
  }
}

// In a CMF file widths and expert counts are nominal, layers are not.
TEST(WeightsTest, ACutModelKeepsItsNominalSizes) {
  const Json arch = ToCmfArch(ReadConfig(Checkpoint(CheckpointKind::kHuggingFace, Config())));
  const auto with = [&](const char* key, uint32_t value) {
    Json header = {{"arch", arch}};
    (header["arch"].contains(key) ? header["arch"][key] : header["arch"]["moe"][key]) = value;
    if (header["arch"].contains("layer_types") && std::string(key) == "num_layers") {
      header["arch"]["layer_types"] = Json::array({"FullAttention"});
    }
    Bind(Checkpoint(CheckpointKind::kCmf, header));
  };
  EXPECT_NO_THROW(with("intermediate_size", 12));
  EXPECT_NO_THROW(with("moe_intermediate_size", 6));
  EXPECT_NO_THROW(with("num_experts", 4));
  EXPECT_THROW(with("vocab_size", 12), Error);
  EXPECT_THROW(with("num_attention_heads", 1), Error);
  try {
    with("num_layers", 1);
    ADD_FAILURE() << "a layer was ignored";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kParse);
    EXPECT_TRUE(error.where().field.starts_with("model.layers.1.")) << error.what();
  }
}

}  // namespace
}  // namespace moewe::model
