// A small random model as a Hugging Face folder, of any widths, for tests of what happens around a
// model rather than in it.
#ifndef MOEWE_TESTS_TINY_MODEL_H_
#define MOEWE_TESTS_TINY_MODEL_H_

#include <cstdint>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace moewe {

struct TinyModel {
  size_t hidden = 32;
  size_t intermediate = 64;
  size_t heads = 2;
  size_t head_dim = 16;
  size_t layers = 1;
  size_t vocab = 64;
  size_t experts = 0;  // of each layer's FFN, `top_k` of which are chosen; 0 = dense
  size_t top_k = 1;
  bool nan_head = false;  // the last vocabulary row of the head is not a number

  // config.json, a llama's or a mixtral's.
  nlohmann::json Config() const {
    return {{"model_type", experts == 0 ? "llama" : "mixtral"},
            {"num_local_experts", experts},
            {"num_experts_per_tok", top_k},
            {"hidden_size", hidden},
            {"intermediate_size", intermediate},
            {"num_attention_heads", heads},
            {"num_key_value_heads", heads},
            {"head_dim", head_dim},
            {"num_hidden_layers", layers},
            {"vocab_size", vocab},
            {"max_position_embeddings", 256},
            {"rms_norm_eps", 1e-5},
            {"tie_word_embeddings", false}};
  }

  // model.safetensors, f32.
  std::string Weights() const {
    std::vector<std::pair<std::string, std::vector<size_t>>> tensors = {
        {"model.embed_tokens.weight", {vocab, hidden}},
        {"model.norm.weight", {hidden}},
        {"lm_head.weight", {vocab, hidden}}};
    for (size_t i = 0; i < layers; ++i) {
      const std::string layer = "model.layers." + std::to_string(i) + ".";
      for (const char* q : {"q", "k", "v"}) {
        tensors.push_back({layer + "self_attn." + q + "_proj.weight", {heads * head_dim, hidden}});
      }
      tensors.push_back({layer + "self_attn.o_proj.weight", {hidden, heads * head_dim}});
      if (experts == 0) {
        tensors.push_back({layer + "mlp.gate_proj.weight", {intermediate, hidden}});
        tensors.push_back({layer + "mlp.up_proj.weight", {intermediate, hidden}});
        tensors.push_back({layer + "mlp.down_proj.weight", {hidden, intermediate}});
      } else {
        const std::string moe = layer + "block_sparse_moe.";
        tensors.push_back({moe + "gate.weight", {experts, hidden}});
        for (size_t e = 0; e < experts; ++e) {
          const std::string expert = moe + "experts." + std::to_string(e) + ".";
          tensors.push_back({expert + "w1.weight", {intermediate, hidden}});
          tensors.push_back({expert + "w3.weight", {intermediate, hidden}});
          tensors.push_back({expert + "w2.weight", {hidden, intermediate}});
        }
      }
      tensors.push_back({layer + "input_layernorm.weight", {hidden}});
      tensors.push_back({layer + "post_attention_layernorm.weight", {hidden}});
    }
    std::mt19937 random(7);
    nlohmann::ordered_json header;
    std::string data;
    for (const auto& [name, shape] : tensors) {
      const size_t count = shape.size() == 2 ? shape[0] * shape[1] : shape[0];
      const size_t begin = data.size();
      for (size_t i = 0; i < count; ++i) {
        float value = static_cast<float>(random() % 2001) / 2000.0f - 0.5f;
        if (shape.size() == 1) value = 1.0f;
        if (nan_head && name == "lm_head.weight" && i >= count - hidden) {
          value = std::numeric_limits<float>::quiet_NaN();
        }
        data.append(reinterpret_cast<const char*>(&value), sizeof(value));
      }
      header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {begin, data.size()}}};
    }
    const std::string text = header.dump();
    const uint64_t length = text.size();
    return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text + data;
  }
};

}  // namespace moewe

#endif  // MOEWE_TESTS_TINY_MODEL_H_
