// Checkpoints that are published as FP8 with a scale a block: converted as the numbers that they
// stand for, refused where these cannot be told.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/f16.h"
#include "convert/convert.h"
#include "convert/to_smoe.h"
#include "formats/cmf/cmf_file.h"
#include "golden.h"
#include "model/canonical.h"
#include "model/model.h"
#include "moewe/error.h"
#include "quant/fp8.h"

namespace moewe::convert {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using formats::TensorView;

struct Stored {
  std::string dtype;
  std::vector<uint64_t> shape;
  std::string bytes;
};
using Tensors = std::map<std::string, Stored>;

template <typename T>
std::string Raw(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

bool IsQuantized(const TensorView& tensor) {  // as published: all projections, no router
  return tensor.shape.size() == 2 &&
         (tensor.name.ends_with("_proj.weight") || tensor.name.ends_with("proj_with_mqa.weight") ||
          tensor.name.ends_with(".w1.weight") || tensor.name.ends_with(".w2.weight") ||
          tensor.name.ends_with(".w3.weight"));
}

// A golden model with its projections as FP8, and the same numbers as f32.
class Fp8Convert : public testing::Test {
 protected:
  Fp8Convert() : folder_(fs::temp_directory_path() / ("moewe_fp8." + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~Fp8Convert() override { fs::remove_all(folder_); }

  std::string At(const std::string& name) const { return (folder_ / name).string(); }

  void Make(const std::string& family, uint32_t block_rows, uint32_t block_cols,
            bool bf16 = false) {
    const auto source = formats::OpenCheckpoint(golden::Path("hf/" + family).string());
    config_ = source->config();
    config_["quantization_config"] = {{"activation_scheme", "dynamic"},
                                      {"fmt", "e4m3"},
                                      {"quant_method", "fp8"},
                                      {"weight_block_size", {block_rows, block_cols}}};
    uint32_t noise = 1;
    for (const TensorView& tensor : source->tensors()) {
      const std::string bytes(tensor.bytes.begin(), tensor.bytes.end());
      const std::string dtype = tensor.dtype == DType::kF32 ? "F32" : "BF16";
      if (!IsQuantized(tensor)) {
        fp8_[tensor.name] = plain_[tensor.name] = {dtype, tensor.shape, bytes};
        continue;
      }
      const uint64_t rows = tensor.shape[0];
      const uint64_t cols = tensor.shape[1];
      const uint64_t grid_rows = (rows + block_rows - 1) / block_rows;
      const uint64_t grid_cols = (cols + block_cols - 1) / block_cols;
      std::vector<float> scales(grid_rows * grid_cols);
      for (float& scale : scales) {
        noise = noise * 1664525 + 1013904223;
        // Bits that FP8 times the scale does not hold in 24: the product is rounded once.
        scale = (1.0f + static_cast<float>(noise >> 9) * 0x1p-23f) * 0x1p-10f;
        if (bf16) scale = Bf16ToF32(F32ToBf16(scale));
      }
      std::vector<uint8_t> codes(rows * cols);
      std::vector<float> values(rows * cols);
      for (uint64_t i = 0; i < codes.size(); ++i) {
        noise = noise * 1664525 + 1013904223;
        codes[i] = static_cast<uint8_t>(noise >> 24);
        if ((codes[i] & 0x7F) == 0x7F) codes[i] ^= 1;
        values[i] = quant::Fp8ToF32(codes[i]) *
                    scales[i / cols / block_rows * grid_cols + i % cols / block_cols];
      }
      std::vector<uint16_t> halves;
      for (const float scale : scales) halves.push_back(F32ToBf16(scale));
      plain_[tensor.name] = {"F32", tensor.shape, Raw(values)};
      fp8_[tensor.name] = {"F8_E4M3", tensor.shape, Raw(codes)};
      fp8_[tensor.name + "_scale_inv"] = {
          bf16 ? "BF16" : "F32", {grid_rows, grid_cols}, bf16 ? Raw(halves) : Raw(scales)};
    }
  }

  std::string Write(const std::string& name, const Tensors& tensors, const Json& config) const {
    fs::create_directories(folder_ / name);
    std::ofstream(folder_ / name / "config.json") << config.dump();
    Json header = Json::object();
    std::string data;
    for (const auto& [tensor, stored] : tensors) {
      header[tensor] = {{"dtype", stored.dtype},
                        {"shape", stored.shape},
                        {"data_offsets", {data.size(), data.size() + stored.bytes.size()}}};
      data += stored.bytes;
    }
    const std::string text = header.dump();
    const uint64_t length = text.size();
    std::ofstream out(folder_ / name / "model.safetensors", std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof(length));
    out << text << data;
    return At(name);
  }

  std::string WriteFp8() const { return Write("fp8", fp8_, config_); }
  std::string WritePlain() const {
    Json config = config_;
    config.erase("quantization_config");
    return Write("plain", plain_, config);
  }

  std::string ConvertTo(const std::string& folder, DType quant, const std::string& name) {
    ConvertOptions options;
    options.quant = quant;
    ConvertToCmf(*formats::OpenCheckpoint(folder), At(name), options, pool_);
    return At(name);
  }

  // What converting the checkpoint as it is now says.
  ErrorCode Refusal(std::string* message, std::string* field) {
    try {
      ConvertTo(WriteFp8(), DType::kQ8Row, "refused.cmf");
    } catch (const Error& error) {
      *message = error.message();
      *field = error.where().field;
      EXPECT_FALSE(fs::exists(At("refused.cmf")));
      return error.code();
    }
    ADD_FAILURE() << "converted";
    return ErrorCode::kInternal;
  }

  fs::path folder_;
  Json config_;
  Tensors fp8_, plain_;
  ThreadPool pool_{2};
};

void ExpectSameTensors(const std::string& a, const std::string& b) {
  const auto left = formats::CmfFile::Open(a);
  const auto right = formats::CmfFile::Open(b);
  ASSERT_EQ(left->tensors().size(), right->tensors().size());
  for (size_t i = 0; i < left->tensors().size(); ++i) {
    const TensorView& x = left->tensors()[i];
    const TensorView& y = right->tensors()[i];
    EXPECT_EQ(x.name, y.name);
    EXPECT_EQ(x.dtype, y.dtype) << x.name;
    EXPECT_EQ(x.shape, y.shape) << x.name;
    EXPECT_TRUE(std::equal(x.bytes.begin(), x.bytes.end(), y.bytes.begin(), y.bytes.end()))
        << x.name;
  }
  EXPECT_EQ(left->config()["arch"], right->config()["arch"]);
}

TEST_F(Fp8Convert, IsThatOfTheNumbersThatItStandsFor) {
  // Blocks as published, larger than these matrices, and small ones that do not divide them.
  const std::vector<std::tuple<const char*, uint32_t, uint32_t, bool>> cases = {
      {"deepseek_v3", 128, 128, false},
      {"deepseek_v3", 16, 24, false},
      {"minimax_m2", 20, 32, false},
      {"qwen3_moe", 32, 16, true}};
  for (const auto& [family, rows, cols, bf16] : cases) {
    fp8_.clear();
    plain_.clear();
    Make(family, rows, cols, bf16);
    const std::string fp8 = WriteFp8();
    const std::string plain = WritePlain();
    for (const DType quant : {DType::kF32, DType::kQ8Row, DType::kVbitRo}) {
      SCOPED_TRACE(family + std::string(" ") + std::string(DTypeName(quant)));
      ExpectSameTensors(ConvertTo(fp8, quant, "fp8.cmf"), ConvertTo(plain, quant, "plain.cmf"));
    }
  }
}

TEST_F(Fp8Convert, VaultsAreTheSameToo) {
  Make("deepseek_v3", 16, 24);
  SmoeOptions options;
  options.bits = 4;
  ConvertToSmoe(*formats::OpenCheckpoint(WriteFp8()), At("fp8.smoe"), options, pool_);
  ConvertToSmoe(*formats::OpenCheckpoint(WritePlain()), At("plain.smoe"), options, pool_);
  EXPECT_EQ(golden::ReadBytes(At("fp8.smoe")), golden::ReadBytes(At("plain.smoe")));
}

// Nothing computes with FP8, and nothing pretends to.
TEST_F(Fp8Convert, TheFolderItselfIsNotRun) {
  Make("deepseek_v3", 128, 128);
  try {
    model::Model::Load(formats::OpenCheckpoint(WriteFp8()), {}, &pool_);
    ADD_FAILURE() << "loaded";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(error.message().find("convert"), std::string::npos) << error.message();
  }
}

TEST_F(Fp8Convert, FaultsAreRefusedByName) {
  Make("deepseek_v3", 16, 24);
  const Tensors good = fp8_;
  const Json good_config = config_;
  const std::string weight = "model.layers.1.mlp.experts.2.up_proj.weight";
  const std::string scale = weight + "_scale_inv";
  ASSERT_TRUE(good.contains(scale));
  std::string message;
  std::string field;
  const auto restore = [&] {
    fp8_ = good;
    config_ = good_config;
  };

  fp8_.erase(scale);
  EXPECT_EQ(Refusal(&message, &field), ErrorCode::kMissingTensor);
  EXPECT_EQ(field, scale);

  restore();
  std::swap(fp8_[scale].shape[0], fp8_[scale].shape[1]);
  EXPECT_EQ(Refusal(&message, &field), ErrorCode::kParse);
  EXPECT_EQ(field, scale);
  EXPECT_NE(message.find("blocks of 16 x 24"), std::string::npos) << message;

  restore();
  fp8_[weight].bytes[5] = '\x7F';
  EXPECT_EQ(Refusal(&message, &field), ErrorCode::kParse);
  EXPECT_EQ(field, weight);
  EXPECT_NE(message.find("no number"), std::string::npos) << message;

  restore();
  const float infinite = INFINITY;
  std::memcpy(fp8_[scale].bytes.data(), &infinite, sizeof(infinite));
  EXPECT_EQ(Refusal(&message, &field), ErrorCode::kParse);
  EXPECT_EQ(field, weight);

  restore();  // scales of what is not FP8
  fp8_[weight] = plain_[weight];
  EXPECT_EQ(Refusal(&message, &field), ErrorCode::kUnsupported);
  EXPECT_EQ(field, scale);

  restore();  // the other FP8
  fp8_[weight].dtype = "F8_E5M2";
  EXPECT_EQ(Refusal(&message, &field), ErrorCode::kUnsupported);
  EXPECT_EQ(field, weight);

  const std::vector<std::pair<std::string, Json>> configs = {{"weight_block_size", nullptr},
                                                             {"weight_block_size", {128}},
                                                             {"weight_block_size", {0, 128}},
                                                             {"weight_block_size", {1.5, 2}},
                                                             {"fmt", "e5m2"},
                                                             {"group_size", 64}};
  for (const auto& [key, value] : configs) {
    restore();
    config_["quantization_config"][key] = value;
    Refusal(&message, &field);
    EXPECT_EQ(field, "config.quantization_config." + key);
  }
}

}  // namespace
}  // namespace moewe::convert
