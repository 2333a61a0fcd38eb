// gpt-oss's layouts of experts: what is made of them, and what is refused.
#include "model/packed_experts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/f16.h"
#include "formats/made_bytes.h"
#include "golden.h"
#include "memory_checkpoint.h"
#include "model/canonical.h"
#include "model/config.h"
#include "moewe/error.h"

namespace moewe::model {
namespace {

using formats::TensorView;
using Json = nlohmann::ordered_json;

std::vector<float> Values(const TensorView& tensor) {
  const formats::HeldBytes held(tensor);
  return quant::Decode(tensor.dtype, tensor.bytes, tensor.matrix(), {"", tensor.name, {}});
}

TensorView View(const std::vector<uint8_t>& bytes, std::vector<uint64_t> shape) {
  TensorView view;
  view.name = "bank";
  view.dtype = DType::kU8;
  view.shape = std::move(shape);
  view.bytes = Bytes(bytes);
  return view;
}

// Two experts of two rows and one group each.
TEST(PackedExperts, Mxfp4IsUnpackedLowNibblesFirst) {
  std::vector<uint8_t> blocks(2 * 2 * 16);
  // Expert 1, row 1: codes 0, 1, ... 15 and again.
  for (size_t i = 0; i < 16; ++i) {
    blocks[3 * 16 + i] = static_cast<uint8_t>((2 * i % 16) | (2 * i % 16 + 1) << 4);
  }
  const std::vector<uint8_t> scales = {127, 127, 127, 130};
  const TensorView unpacked = UnpackedRows(View(blocks, {2, 2, 1, 16}), View(scales, {2, 2, 1}), 1,
                                           RowsInTurn{1, 2}, "file");
  EXPECT_EQ(unpacked.dtype, DType::kBf16);
  EXPECT_EQ(unpacked.shape, (std::vector<uint64_t>{1, 32}));
  const std::vector<float> numbers = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const std::vector<float> values = Values(unpacked);
  for (size_t i = 0; i < 32; ++i) {
    const float magnitude = 8 * numbers[i % 8];
    EXPECT_EQ(values[i], i % 16 < 8 ? magnitude : -magnitude) << i;
  }
}

TEST(PackedExperts, AScaleOfNoNumberIsAnError) {
  const std::vector<uint8_t> blocks(16, 0x77);  // 6 and 6
  for (const uint8_t scale : {uint8_t{253}, uint8_t{254}, uint8_t{255}}) {
    const std::vector<uint8_t> scales = {scale};
    const TensorView unpacked =
        UnpackedRows(View(blocks, {1, 1, 1, 16}), View(scales, {1, 1, 1}), 0, {}, "file");
    try {
      Values(unpacked);
      ADD_FAILURE() << int{scale};
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kParse);
      EXPECT_EQ(error.where().file, "file");
      EXPECT_EQ(error.where().field, "bank");
    }
  }
  const std::vector<uint8_t> largest = {252};
  EXPECT_EQ(Values(UnpackedRows(View(blocks, {1, 1, 1, 16}), View(largest, {1, 1, 1}), 0, {}, "")),
            std::vector<float>(32, std::ldexp(6.0f, 125)));
}

// The golden checkpoint with `change` made to it.
class GptOss {
 public:
  GptOss() : GptOss(Json(golden::ReadJson(golden::Path("hf/gpt_oss/config.json")))) {}
  explicit GptOss(const Json& config)
      : source_(formats::CheckpointKind::kHuggingFace, config),
        changed_(formats::CheckpointKind::kHuggingFace, config) {
    source_.AddSafetensors(golden::ReadBytes(golden::Path("hf/gpt_oss/model.safetensors")));
  }
  // Everything of the golden checkpoint but tensors whose name holds `without`.
  MemoryCheckpoint& Without(const std::string& without) {
    for (const TensorView& tensor : source_.tensors()) {
      if (tensor.name.find(without) != tensor.name.npos) continue;
      changed_.Add(tensor.name, tensor.dtype, tensor.shape,
                   {tensor.bytes.begin(), tensor.bytes.end()});
    }
    return changed_;
  }
  MemoryCheckpoint& Changed() { return changed_; }

 private:
  MemoryCheckpoint source_, changed_;
};

std::map<std::string, std::vector<float>> Experts(const MemoryCheckpoint& checkpoint) {
  std::map<std::string, std::vector<float>> experts;
  for (const TensorView& tensor : CanonicalTensors(checkpoint, ReadConfig(checkpoint))) {
    if (tensor.name.find(".mlp.experts.") != tensor.name.npos) {
      experts[tensor.name] = Values(tensor);
    }
  }
  return experts;
}

constexpr uint64_t kBankExperts = 6, kBankHidden = 64, kBankRows = 96, kBankGroups = 2;

// One bank in both of its published layouts gives the same experts.
TEST(PackedExperts, BothLayoutsGiveOneModel) {
  const std::string bank = "model.layers.2.mlp.experts.gate_up_proj";
  std::mt19937 random(3);
  std::vector<uint8_t> blocks(kBankExperts * kBankRows * kBankGroups * 16);
  std::vector<uint8_t> scales(kBankExperts * kBankRows * kBankGroups);
  for (uint8_t& byte : blocks) byte = static_cast<uint8_t>(random());
  for (uint8_t& scale : scales) scale = static_cast<uint8_t>(118 + random() % 8);
  const std::vector<float> numbers = {0, 0.5,  1,  1.5,  2,  3,  4,  6,
                                      0, -0.5, -1, -1.5, -2, -3, -4, -6};
  std::vector<uint8_t> plain(kBankExperts * kBankHidden * kBankRows * 2);
  for (uint64_t e = 0; e < kBankExperts; ++e) {
    for (uint64_t row = 0; row < kBankRows; ++row) {
      for (uint64_t col = 0; col < kBankHidden; ++col) {
        const uint64_t at = (e * kBankRows + row) * kBankHidden + col;
        const uint8_t code = col % 2 == 0 ? blocks[at / 2] & 15 : blocks[at / 2] >> 4;
        const uint16_t value = F32ToBf16(std::ldexp(numbers[code], scales[at / 32] - 127));
        std::memcpy(&plain[((e * kBankHidden + col) * kBankRows + row) * 2], &value, 2);
      }
    }
  }
  GptOss one;
  MemoryCheckpoint& by_input = one.Without(bank);
  GptOss other;
  MemoryCheckpoint& packed = other.Without(bank);
  // Without() leaves out the biases of the bank, too.
  const std::vector<uint8_t> biases(kBankExperts * kBankRows * 2);
  for (MemoryCheckpoint* checkpoint : {&by_input, &packed}) {
    checkpoint->Add(bank + "_bias", DType::kBf16, {kBankExperts, kBankRows}, biases);
  }
  by_input.Add(bank, DType::kBf16, {kBankExperts, kBankHidden, kBankRows}, plain);
  packed.Add(bank + "_scales", DType::kU8, {kBankExperts, kBankRows, kBankGroups}, scales);
  packed.Add(bank + "_blocks", DType::kU8, {kBankExperts, kBankRows, kBankGroups, 16}, blocks);
  const auto expected = Experts(by_input);
  EXPECT_EQ(expected.size(), 4 * kBankExperts * 6);
  // Not only zeros.
  EXPECT_NE(expected.at("model.layers.2.mlp.experts.5.gate_proj.weight"),
            expected.at("model.layers.2.mlp.experts.5.up_proj.weight"));
  EXPECT_TRUE(Experts(packed) == expected);
}

void ExpectRefused(const MemoryCheckpoint& checkpoint, ErrorCode code, const std::string& field) {
  try {
    CanonicalTensors(checkpoint, ReadConfig(checkpoint));
    ADD_FAILURE() << field << " was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_EQ(error.where().field, field);
  }
}

TEST(PackedExperts, WhatDoesNotFitIsRefused) {
  const std::string bank = "model.layers.2.mlp.experts.gate_up_proj";
  const auto bytes = [](size_t size) { return std::vector<uint8_t>(size, 100); };
  const std::vector<uint64_t> block_shape = {kBankExperts, kBankRows, kBankGroups, 16};
  const size_t block_bytes = kBankExperts * kBankRows * kBankGroups * 16;
  GptOss alone;
  alone.Without(bank).Add(bank + "_blocks", DType::kU8, block_shape, bytes(block_bytes));
  ExpectRefused(alone.Changed(), ErrorCode::kMissingTensor, bank + "_blocks");
  GptOss scales;
  scales.Without(bank).Add(bank + "_scales", DType::kU8, {1, 2, 1}, bytes(2));
  ExpectRefused(scales.Changed(), ErrorCode::kMissingTensor, bank + "_scales");
  GptOss other_size;
  MemoryCheckpoint& checkpoint = other_size.Without(bank);
  checkpoint.Add(bank + "_blocks", DType::kU8, block_shape, bytes(block_bytes));
  checkpoint.Add(bank + "_scales", DType::kU8, {kBankExperts, kBankRows, 1},
                 bytes(kBankExperts * kBankRows));
  ExpectRefused(checkpoint, ErrorCode::kParse, bank + "_blocks");
  GptOss odd;
  odd.Without(bank).Add(bank, DType::kBf16, {1, kBankHidden, 3}, bytes(kBankHidden * 6));
  ExpectRefused(odd.Changed(), ErrorCode::kParse, bank);
  GptOss flat;
  flat.Without(bank).Add(bank, DType::kBf16, {kBankHidden, 4}, bytes(kBankHidden * 8));
  ExpectRefused(flat.Changed(), ErrorCode::kParse, bank);

  // Of another family these are weights that somebody quantized.
  MemoryCheckpoint mixtral(formats::CheckpointKind::kHuggingFace,
                           {{"model_type", "mixtral"}, {"num_hidden_layers", 1}});
  mixtral.Add("model.layers.0.mlp.experts.gate_up_proj_blocks", DType::kU8, {1, 2, 1, 16},
              bytes(32));
  ExpectRefused(mixtral, ErrorCode::kUnsupported, "model.layers.0.mlp.experts.gate_up_proj_blocks");
}

}  // namespace
}  // namespace moewe::model
