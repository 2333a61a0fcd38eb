#include "convert/synthetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <list>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "convert/dtype_choice.h"
#include "convert/encode.h"
#include "formats/tensor_index.h"
#include "model/config.h"
#include "moewe/error.h"

namespace moewe::convert {
namespace {

using formats::TensorView;

enum class QkNorm : uint8_t { kNone, kHead, kWhole };

// A published config.json's sizes, and which optional tensors the checkpoint has beside it.
struct ShapeRow {
  const char* name;
  const char* config;
  bool qkv_bias = false;
  QkNorm qk_norm = QkNorm::kNone;
  bool expert_bias = false;
  bool shared_gate = false;
  uint32_t dense_layers = 0;  // the first ones, without experts
};

constexpr std::array kShapes = {
    ShapeRow{
        .name = "qwen3-30b-a3b",
        .config = R"({"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144,
        "moe_intermediate_size": 768, "num_hidden_layers": 48, "num_attention_heads": 32,
        "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8,
        "norm_topk_prob": true, "vocab_size": 151936, "max_position_embeddings": 40960,
        "rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": false})",
        .qk_norm = QkNorm::kHead},
    ShapeRow{
        .name = "qwen3-235b-a22b",
        .config = R"({"model_type": "qwen3_moe", "hidden_size": 4096, "intermediate_size": 12288,
        "moe_intermediate_size": 1536, "num_hidden_layers": 94, "num_attention_heads": 64,
        "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8,
        "norm_topk_prob": true, "vocab_size": 151936, "max_position_embeddings": 40960,
        "rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": false})",
        .qk_norm = QkNorm::kHead},
    // Dense. The published one has its head tied to the embedding; a token reads as much.
    ShapeRow{.name = "qwen3-4b",
             .config = R"({"model_type": "qwen3", "hidden_size": 2560, "intermediate_size": 9728,
        "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
        "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960,
        "rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": false})",
             .qk_norm = QkNorm::kHead},
    ShapeRow{.name = "olmoe-1b-7b",
             .config = R"({"model_type": "olmoe", "hidden_size": 2048, "intermediate_size": 1024,
        "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 16,
        "num_experts": 64, "num_experts_per_tok": 8, "norm_topk_prob": false, "vocab_size": 50304,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
        "tie_word_embeddings": false})",
             .qk_norm = QkNorm::kWhole},
    ShapeRow{.name = "mixtral-8x7b",
             .config = R"({"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32000,
        "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "rope_theta": 1e6,
        "sliding_window": null, "tie_word_embeddings": false})"},
    ShapeRow{
        .name = "qwen2-57b-a14b",
        .config = R"({"model_type": "qwen2_moe", "hidden_size": 3584, "intermediate_size": 18944,
        "moe_intermediate_size": 2560, "shared_expert_intermediate_size": 20480,
        "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
        "num_experts": 64, "num_experts_per_tok": 8, "norm_topk_prob": false, "vocab_size": 151936,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
        "use_sliding_window": false, "tie_word_embeddings": false})",
        .qkv_bias = true,
        .shared_gate = true},
    ShapeRow{
        .name = "glm-4.5-air",
        .config = R"({"model_type": "glm4_moe", "hidden_size": 4096, "intermediate_size": 10944,
        "moe_intermediate_size": 1408, "num_hidden_layers": 46, "num_attention_heads": 96,
        "num_key_value_heads": 8, "head_dim": 128, "partial_rotary_factor": 0.5,
        "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 8,
        "norm_topk_prob": true, "routed_scaling_factor": 1.0, "first_k_dense_replace": 1,
        "n_group": 1, "topk_group": 1, "vocab_size": 151552, "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5, "rope_theta": 1e6, "tie_word_embeddings": false})",
        .qkv_bias = true,
        .expert_bias = true,
        .dense_layers = 1},
};

const ShapeRow& FindShape(const std::string& name) {
  const auto found = std::find_if(kShapes.begin(), kShapes.end(),
                                  [&](const ShapeRow& row) { return row.name == name; });
  if (found != kShapes.end()) return *found;
  throw Error(ErrorCode::kUnknownName, fmt::format("there is no shape '{}'; there are {}", name,
                                                   fmt::join(SyntheticShapes(), ", ")));
}

uint64_t Mix(uint64_t z) {  // the output function of splitmix64
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// Near-normal noise: each value is the sum of four uniform 16-bit numbers, brought to mean 0 and
// standard deviation cols^-1/2. After some rows it repeats: nothing measured depends on that, and
// large matrices are made several times faster.
std::vector<float> Noise(quant::MatrixShape shape, uint64_t seed, ThreadPool& pool) {
  constexpr uint64_t kDistinctRows = 1024;
  constexpr float kMean = 2.0f * 65535.0f;
  const float scale = std::sqrt(3.0f / static_cast<float>(shape.cols)) / 65536.0f;
  const uint64_t distinct = std::min(shape.rows, kDistinctRows);
  std::vector<float> values(shape.rows * shape.cols);
  pool.Run(distinct, [&](size_t row, int) {
    uint64_t state = Mix(seed + row);
    float* out = values.data() + row * shape.cols;
    for (uint64_t i = 0; i < shape.cols; ++i) {
      state += 0x9E3779B97F4A7C15u;
      const uint64_t z = Mix(state);
      const uint64_t sum = (z & 0xFFFF) + (z >> 16 & 0xFFFF) + (z >> 32 & 0xFFFF) + (z >> 48);
      out[i] = (static_cast<float>(sum) - kMean) * scale;
    }
  });
  for (uint64_t row = distinct; row < shape.rows; ++row) {
    std::copy_n(values.data() + row % distinct * shape.cols, shape.cols,
                values.data() + row * shape.cols);
  }
  return values;
}

class SyntheticCheckpoint : public formats::Checkpoint {
 public:
  SyntheticCheckpoint(const SyntheticOptions& options, ThreadPool& pool)
      : shape_(FindShape(options.shape)),
        quant_(options.quant),
        pool_(pool),
        config_(nlohmann::ordered_json::parse(shape_.config)) {
    if (options.layers != 0) config_["num_hidden_layers"] = options.layers;
    if (options.vocab != 0) config_["vocab_size"] = options.vocab;
    files_.push_back(fmt::format("synthetic-{}/model", shape_.name));
    const model::ModelConfig config = model::ConfigFromHuggingFace(config_, files_.front());
    AddMatrix("model.embed_tokens.weight", config.vocab_size, config.hidden_size);
    for (uint32_t i = 0; i < config.num_layers; ++i) AddLayer(config, i);
    AddOnes("model.norm.weight", config.hidden_size);
    AddMatrix("lm_head.weight", config.vocab_size, config.hidden_size);
  }

  formats::CheckpointKind kind() const override { return formats::CheckpointKind::kHuggingFace; }
  const std::vector<std::string>& files() const override { return files_; }
  const std::vector<TensorView>& tensors() const override { return index_.views(); }
  const TensorView* Find(std::string_view name) const override { return index_.Find(name); }
  const nlohmann::ordered_json& config() const override { return config_; }
  Bytes tokenizer_json() const override { return {}; }
  const nlohmann::ordered_json& chat_bundle() const override { return no_chat_; }

 private:
  void AddLayer(const model::ModelConfig& config, uint32_t index) {
    const std::string prefix = fmt::format("model.layers.{}.", index);
    const uint64_t hidden = config.hidden_size;
    AddOnes(prefix + "input_layernorm.weight", hidden);
    AddAttention(config.layers[index], prefix + "self_attn.", hidden);
    AddOnes(prefix + "post_attention_layernorm.weight", hidden);
    const std::string mlp = prefix + "mlp.";
    if (index < shape_.dense_layers || config.moe.num_experts == 0) {
      AddFfn(mlp, config.intermediate_size, hidden);
      return;
    }
    const model::MoeConfig& moe = config.moe;
    AddMatrix(mlp + "gate.weight", moe.num_experts, hidden);
    if (shape_.expert_bias) AddNoise(mlp + "expert_bias", {moe.num_experts});
    for (uint32_t e = 0; e < moe.num_experts; ++e) {
      AddFfn(fmt::format("{}experts.{}.", mlp, e), moe.intermediate_size, hidden);
    }
    if (moe.shared_intermediate_size == 0) return;
    AddFfn(mlp + "shared_expert.", moe.shared_intermediate_size, hidden);
    if (shape_.shared_gate) AddMatrix(mlp + "shared_expert_gate.weight", 1, hidden);
  }

  void AddAttention(const model::LayerConfig& layer, const std::string& prefix, uint64_t hidden) {
    const uint64_t q = uint64_t{layer.num_heads} * layer.head_dim;
    const uint64_t kv = uint64_t{layer.num_kv_heads} * layer.head_dim;
    const std::array<std::pair<const char*, uint64_t>, 3> projections = {
        {{"q_proj", q}, {"k_proj", kv}, {"v_proj", kv}}};
    for (const auto& [name, rows] : projections) {
      AddMatrix(fmt::format("{}{}.weight", prefix, name), rows, hidden);
      if (shape_.qkv_bias) AddNoise(fmt::format("{}{}.bias", prefix, name), {rows});
    }
    AddMatrix(prefix + "o_proj.weight", hidden, q);
    if (shape_.qk_norm == QkNorm::kNone) return;
    const bool whole = shape_.qk_norm == QkNorm::kWhole;
    AddOnes(prefix + "q_norm.weight", whole ? q : layer.head_dim);
    AddOnes(prefix + "k_norm.weight", whole ? kv : layer.head_dim);
  }

  void AddFfn(const std::string& prefix, uint64_t width, uint64_t hidden) {
    AddMatrix(prefix + "gate_proj.weight", width, hidden);
    AddMatrix(prefix + "up_proj.weight", width, hidden);
    AddMatrix(prefix + "down_proj.weight", hidden, width);
  }

  void AddMatrix(const std::string& name, uint64_t rows, uint64_t cols) {
    AddNoise(name, {rows, cols});
  }

  // Any shape, filled with noise: one of the encodings kept for this shape, in turn. Routers and
  // gates have a dtype of their own, embeddings a size.
  void AddNoise(const std::string& name, std::vector<uint64_t> shape) {
    TensorView view = Empty(name, std::move(shape));
    const quant::MatrixShape matrix = view.matrix();
    constexpr uint64_t kFewElements = 4u << 20;
    constexpr size_t kEncodings = 4;
    const size_t wanted = matrix.rows * matrix.cols <= kFewElements ? kEncodings : 1;
    const bool embeds = name == "model.embed_tokens.weight";
    Encodings& kept = encodings_[{view.shape, embeds ? 2 : name.ends_with("gate.weight") ? 1 : 0}];
    if (kept.all.size() < wanted) {
      std::vector<float> values = Noise(matrix, ++seed_ << 32, pool_);
      // To deviation 1: else what attention mixes in of all tokens would outweigh each one's own
      // part, and most tokens would go to the same few experts.
      const float factor = embeds ? std::sqrt(static_cast<float>(matrix.cols)) : 1.0f;
      for (float& value : values) value *= factor;
      kept.all.push_back(Encode(view, values));
    }
    const Encoded& encoded = kept.all[kept.next];
    kept.next = (kept.next + 1) % wanted;
    Add(std::move(view), encoded);
  }

  void AddOnes(const std::string& name, uint64_t size) {
    TensorView view = Empty(name, {size});
    const Encoded encoded = Encode(view, std::vector<float>(size, 1.0f));
    Add(std::move(view), encoded);
  }

  static TensorView Empty(const std::string& name, std::vector<uint64_t> shape) {
    TensorView view;
    view.name = name;
    view.shape = std::move(shape);
    if (!quant::AsMatrix(view.shape)) throw Error(ErrorCode::kUsage, "the model is too large");
    return view;
  }

  struct Encoded {
    DType dtype;
    Bytes bytes;
  };
  struct Encodings {
    std::vector<Encoded> all;
    size_t next = 0;
  };

  void Add(TensorView view, const Encoded& encoded) {
    view.dtype = encoded.dtype;
    view.bytes = encoded.bytes;
    index_.Add(std::move(view));
  }

  // As a conversion would, into storage that lives as long as the checkpoint. Vectors stay f32.
  Encoded Encode(const TensorView& shape, const std::vector<float>& values) {
    TensorView view = shape;
    view.bytes = {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(float)};
    const DType dtype = view.shape.size() == 1 ? DType::kF32 : ChooseDType(view, quant_);
    storage_.push_back(dtype == DType::kF32
                           ? std::vector<uint8_t>(view.bytes.begin(), view.bytes.end())
                           : EncodeTensor(view, dtype, {}, pool_, {shape.name, ""}));
    return {dtype, storage_.back()};
  }

  const ShapeRow& shape_;
  const DType quant_;
  ThreadPool& pool_;
  nlohmann::ordered_json config_;
  nlohmann::ordered_json no_chat_;
  std::vector<std::string> files_;
  formats::TensorIndex index_;
  std::list<std::vector<uint8_t>> storage_;
  std::map<std::pair<std::vector<uint64_t>, int>, Encodings> encodings_;  // by shape and use
  uint64_t seed_ = 0;
};

}  // namespace

std::vector<std::string> SyntheticShapes() {
  std::vector<std::string> names;
  for (const ShapeRow& row : kShapes) names.emplace_back(row.name);
  return names;
}

std::unique_ptr<formats::Checkpoint> MakeSynthetic(const SyntheticOptions& options,
                                                   ThreadPool& pool) {
  return std::make_unique<SyntheticCheckpoint>(options, pool);
}

}  // namespace moewe::convert
