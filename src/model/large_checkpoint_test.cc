// A checkpoint of the size of DeepSeek-V3, of which nothing but the headers is read: 92,000 tensors
// in sparse files, 690 GB if they were full.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "formats/checkpoint.h"
#include "model/weights.h"

namespace moewe::model {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr uint64_t kV3Hidden = 7168, kV3ExpertWidth = 2048, kV3Width = 18432, kV3Vocab = 129280;
constexpr uint64_t kV3Layers = 61, kV3Dense = 3, kV3Experts = 256, kV3Heads = 128;
constexpr uint64_t kShards = 40;

// Writes safetensors files, each with a header and a hole for the data, and their index.
class SparseCheckpoint {
 public:
  SparseCheckpoint()
      : folder_(fs::temp_directory_path() / ("moewe_large." + std::to_string(getpid()))),
        headers_(kShards),
        sizes_(kShards) {
    fs::create_directories(folder_);
  }
  ~SparseCheckpoint() { fs::remove_all(folder_); }

  const fs::path& folder() const { return folder_; }
  size_t count() const { return count_; }

  void Add(const std::string& name, const char* dtype, uint64_t rows, uint64_t cols) {
    const uint64_t element = dtype[0] == 'F' ? (dtype[1] == '8' ? 1 : 4) : 2;
    const size_t shard = count_++ * kShards / 93000;
    uint64_t& size = sizes_[shard];
    const std::string shape =
        rows == 0 ? fmt::format("[{}]", cols) : fmt::format("[{},{}]", rows, cols);
    const uint64_t end = size + std::max<uint64_t>(rows, 1) * cols * element;
    headers_[shard] += fmt::format(R"(,"{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
                                   name, dtype, shape, size, end);
    size = end;
    map_[name] = Name(shard);
  }

  void AddFp8(const std::string& name, uint64_t rows, uint64_t cols) {
    Add(name + ".weight", "F8_E4M3", rows, cols);
    Add(name + ".weight_scale_inv", "F32", (rows + 127) / 128, (cols + 127) / 128);
  }

  void AddFfn(const std::string& prefix, uint64_t width) {
    AddFp8(prefix + "gate_proj", width, kV3Hidden);
    AddFp8(prefix + "up_proj", width, kV3Hidden);
    AddFp8(prefix + "down_proj", kV3Hidden, width);
  }

  // False if the file system holds no file of such a size.
  bool Write(const Json& config) const {
    std::ofstream(folder_ / "config.json") << config.dump();
    std::ofstream(folder_ / "model.safetensors.index.json") << Json{{"weight_map", map_}}.dump();
    for (size_t i = 0; i < kShards; ++i) {
      const std::string header = "{" + headers_[i].substr(1) + "}";
      const uint64_t length = header.size();
      std::ofstream out(folder_ / Name(i), std::ios::binary);
      out.write(reinterpret_cast<const char*>(&length), sizeof(length));
      out << header;
      out.close();
      std::error_code problem;
      fs::resize_file(folder_ / Name(i), sizeof(length) + length + sizes_[i], problem);
      if (problem) return false;
    }
    return true;
  }

 private:
  static std::string Name(size_t shard) { return fmt::format("model-{:05}.safetensors", shard); }

  fs::path folder_;
  std::vector<std::string> headers_;
  std::vector<uint64_t> sizes_;  // of their data
  std::map<std::string, std::string> map_;
  size_t count_ = 0;
};

void AddLayer(uint64_t layer, SparseCheckpoint* checkpoint) {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  checkpoint->Add(prefix + "input_layernorm.weight", "BF16", 0, kV3Hidden);
  checkpoint->Add(prefix + "post_attention_layernorm.weight", "BF16", 0, kV3Hidden);
  checkpoint->AddFp8(prefix + "self_attn.q_a_proj", 1536, kV3Hidden);
  checkpoint->Add(prefix + "self_attn.q_a_layernorm.weight", "BF16", 0, 1536);
  checkpoint->AddFp8(prefix + "self_attn.q_b_proj", kV3Heads * 192, 1536);
  checkpoint->AddFp8(prefix + "self_attn.kv_a_proj_with_mqa", 576, kV3Hidden);
  checkpoint->Add(prefix + "self_attn.kv_a_layernorm.weight", "BF16", 0, 512);
  checkpoint->AddFp8(prefix + "self_attn.kv_b_proj", kV3Heads * 256, 512);
  checkpoint->AddFp8(prefix + "self_attn.o_proj", kV3Hidden, kV3Heads * 128);
  if (layer < kV3Dense) return checkpoint->AddFfn(prefix + "mlp.", kV3Width);
  checkpoint->Add(prefix + "mlp.gate.weight", "BF16", kV3Experts, kV3Hidden);
  checkpoint->Add(prefix + "mlp.gate.e_score_correction_bias", "F32", 0, kV3Experts);
  checkpoint->AddFfn(prefix + "mlp.shared_experts.", kV3ExpertWidth);
  for (uint64_t e = 0; e < kV3Experts; ++e) {
    checkpoint->AddFfn(fmt::format("{}mlp.experts.{}.", prefix, e), kV3ExpertWidth);
  }
}

// The last layer is a prediction head.
void AddModel(SparseCheckpoint* checkpoint) {
  checkpoint->Add("model.embed_tokens.weight", "BF16", kV3Vocab, kV3Hidden);
  checkpoint->Add("model.norm.weight", "BF16", 0, kV3Hidden);
  checkpoint->Add("lm_head.weight", "BF16", kV3Vocab, kV3Hidden);
  for (uint64_t layer = 0; layer <= kV3Layers; ++layer) AddLayer(layer, checkpoint);
  const std::string head = fmt::format("model.layers.{}.", kV3Layers);
  checkpoint->Add(head + "eh_proj.weight", "BF16", kV3Hidden, 2 * kV3Hidden);
  for (const char* norm : {"enorm.weight", "hnorm.weight", "shared_head.norm.weight"}) {
    checkpoint->Add(head + norm, "BF16", 0, kV3Hidden);
  }
}

Json DeepSeekV3() {
  // Sizes are what DeepSeek-V3's configuration class has by default.
  return {{"model_type", "deepseek_v3"},
          {"num_nextn_predict_layers", 1},
          {"quantization_config",
           {{"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {128, 128}}}}};
}

// Time is printed and not tested: another's machine may be busy.
TEST(LargeCheckpoint, IsOpenedAndBoundFromItsHeaders) {
  SparseCheckpoint made;
  AddModel(&made);
  ASSERT_GT(made.count(), 90000u);
  if (!made.Write(DeepSeekV3())) GTEST_SKIP() << "no sparse files of this size here";
  const std::clock_t begin = std::clock();
  const auto checkpoint = formats::OpenCheckpoint(made.folder().string());
  const std::clock_t opened = std::clock();
  const ModelConfig config = model::ReadConfig(*checkpoint);
  const Weights weights =
      BindWeights(*checkpoint, config, TensorHashes::kIgnore, BytesToRead::kNone);
  const std::clock_t bound = std::clock();
  const auto seconds = [](std::clock_t time) {
    return static_cast<double>(time) / static_cast<double>(CLOCKS_PER_SEC);
  };
  std::printf("%zu tensors: opened in %.2f s of processor time, bound in %.2f s\n", made.count(),
              seconds(opened - begin), seconds(bound - opened));

  EXPECT_EQ(config.mtp_layers, 1u);
  ASSERT_EQ(weights.layers.size(), kV3Layers);
  uint64_t experts = 0;
  for (const LayerWeights& layer : weights.layers) experts += layer.moe.experts.size();
  EXPECT_EQ(experts, (kV3Layers - kV3Dense) * kV3Experts);
  EXPECT_EQ(weights.expert_bytes, experts * 3 * kV3Hidden * kV3ExpertWidth);
  EXPECT_GT(weights.bytes_total, uint64_t{620} << 30);
  // An expert is where the header of its shard says, with its scales.
  const uint32_t index = weights.layers[60].moe.expert_tensors[255][2];
  const formats::TensorView& down = weights.tensors[index];
  EXPECT_EQ(down.name, "model.layers.60.mlp.experts.255.down_proj.weight");
  EXPECT_EQ(down.dtype, DType::kF8E4m3);
  EXPECT_EQ(down.shape, (std::vector<uint64_t>{kV3Hidden, kV3ExpertWidth}));
  EXPECT_EQ(down.scales.bytes.size(), 56u * 16 * 4);
  EXPECT_EQ(down.scales.bytes.data(), down.bytes.data() + down.bytes.size());
  EXPECT_EQ(weights.uses[index], TensorUse::kExpert);
}

}  // namespace
}  // namespace moewe::model
