#include "convert/synthetic.h"

#include <gmock/gmock.h>

#include <cmath>

#include "model/weights.h"
#include "moewe/error.h"
#include "quant/codec.h"

namespace moewe::convert {
namespace {

// Binding checks names, shapes and that nothing is missing or left over.
TEST(Synthetic, EveryShapeIsAModel) {
  ThreadPool pool;
  for (const std::string& shape : SyntheticShapes()) {
    const auto checkpoint =
        MakeSynthetic({.shape = shape, .layers = 2, .vocab = 64, .quant = DType::kQ4Tiled}, pool);
    const model::ModelConfig config = model::ReadConfig(*checkpoint);
    const model::Weights weights =
        model::BindWeights(*checkpoint, config, model::TensorHashes::kIgnore);
    ASSERT_EQ(weights.layers.size(), 2u) << shape;
    EXPECT_EQ(weights.layers[1].moe.experts.size(), config.moe.num_experts) << shape;
    EXPECT_EQ(weights.layers[1].moe.shared.gate.empty(), config.moe.shared_intermediate_size == 0);
    EXPECT_EQ(weights.layers[1].ffn.gate.empty(), config.moe.num_experts != 0) << shape;
  }
}

TEST(Synthetic, MatricesHoldNoiseOfTheRightScale) {
  ThreadPool pool(2);
  const SyntheticOptions options{"qwen3-30b-a3b", 1, 64, DType::kQ4tp};
  const auto checkpoint = MakeSynthetic(options, pool);
  const formats::TensorView& k = *checkpoint->Find("model.layers.0.self_attn.k_proj.weight");
  EXPECT_EQ(k.dtype, DType::kQ4tp);
  EXPECT_EQ(checkpoint->Find("model.layers.0.mlp.gate.weight")->dtype, DType::kF16);
  const std::vector<float> values = quant::Decode(k.dtype, k.bytes, k.matrix(), {});
  double sum = 0;
  double squares = 0;
  for (const float value : values) {
    sum += value;
    squares += double{value} * value;
  }
  const auto n = static_cast<double>(values.size());
  EXPECT_NEAR(sum / n, 0.0, 1e-3);
  EXPECT_NEAR(std::sqrt(squares / n * 2048), 1.0, 0.02);

  // Embeddings have deviation 1, so that tokens are routed by what they are.
  const formats::TensorView& embed = *checkpoint->Find("model.embed_tokens.weight");
  squares = 0;
  for (const float value : quant::Decode(embed.dtype, embed.bytes, embed.matrix(), {})) {
    squares += double{value} * value;
  }
  EXPECT_NEAR(std::sqrt(squares / (64.0 * 2048)), 1.0, 0.02);

  ThreadPool one(1);
  const auto again = MakeSynthetic(options, one);
  for (const formats::TensorView& tensor : checkpoint->tensors()) {
    const Bytes bytes = again->Find(tensor.name)->bytes;
    ASSERT_TRUE(std::equal(bytes.begin(), bytes.end(), tensor.bytes.begin(), tensor.bytes.end()))
        << tensor.name;
  }
}

TEST(Synthetic, UnknownShapesAreNamed) {
  ThreadPool pool(1);
  try {
    MakeSynthetic({.shape = "gpt-17"}, pool);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnknownName);
    EXPECT_THAT(error.message(), testing::HasSubstr("qwen3-30b-a3b"));
  }
}

}  // namespace
}  // namespace moewe::convert
