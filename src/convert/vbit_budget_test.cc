// The joint allocation of vbit widths: against a file that the format's own writer made, and its
// properties.
#include "convert/vbit_budget.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "golden.h"
#include "quant/vbit.h"

namespace moewe::convert {
namespace {

double MeanWidth(const std::vector<std::vector<uint8_t>>& widths) {
  double sum = 0.0;
  double rows = 0.0;
  for (const std::vector<uint8_t>& expert : widths) {
    for (const uint8_t width : expert) sum += width;
    rows += static_cast<double>(expert.size());
  }
  return sum / rows;
}

std::vector<std::vector<float>> RandomAmplitudes(size_t experts, size_t rows, float spread) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 0.6f);
  std::vector<std::vector<float>> amplitudes(experts);
  for (size_t e = 0; e < experts; ++e) {
    for (size_t row = 0; row < rows; ++row) {
      amplitudes[e].push_back(-4.0f + spread * static_cast<float>(e) + normal(random));
    }
  }
  return amplitudes;
}

// The largest weight of a group is stored almost exactly, so that the amplitudes of the decoded
// rows are those that the writer saw, but for a few rows near the border of two widths.
TEST(JointVbitWidths, AgreeWithAnExistingFile) {
  const auto file =
      formats::OpenCheckpoint(golden::Path("cmf/files/moe_qwen3_py_vbit_joint.cmf").string());
  std::map<std::string, std::vector<const formats::TensorView*>> families;
  for (const formats::TensorView& tensor : file->tensors()) {
    const auto parsed = ParseExpertTensor(tensor.name);
    if (!parsed) continue;
    ASSERT_EQ(tensor.dtype, DType::kVbit);
    families[parsed->family].push_back(&tensor);
  }
  EXPECT_EQ(families.size(), 9u);
  size_t rows = 0;
  size_t same = 0;
  for (const auto& [name, tensors] : families) {
    std::vector<std::vector<float>> amplitudes;
    std::vector<std::vector<uint8_t>> stored;
    for (const formats::TensorView* tensor : tensors) {
      const quant::MatrixShape shape = tensor->matrix();
      const std::vector<float> values = quant::Decode(tensor->dtype, tensor->bytes, shape, {});
      amplitudes.emplace_back();
      for (uint64_t row = 0; row < shape.rows; ++row) {
        amplitudes.back().push_back(
            quant::VbitAmplitude(values.data() + row * shape.cols, shape.cols));
      }
      stored.emplace_back(tensor->bytes.begin(),
                          tensor->bytes.begin() + static_cast<ptrdiff_t>(shape.rows));
    }
    const std::vector<std::vector<uint8_t>> widths = JointVbitWidths(amplitudes, {}, 4.25f);
    EXPECT_NEAR(MeanWidth(stored), 4.25, 0.01) << name;
    EXPECT_NEAR(MeanWidth(widths), 4.25, 0.01) << name;
    for (size_t e = 0; e < stored.size(); ++e) {
      for (size_t row = 0; row < stored[e].size(); ++row) {
        ++rows;
        same += stored[e][row] == widths[e][row];
      }
    }
  }
  EXPECT_GE(static_cast<double>(same), 0.99 * static_cast<double>(rows)) << same << " of " << rows;
}

TEST(JointVbitWidths, MeanIsTheOneAskedFor) {
  for (const float mean : {3.25f, 4.25f, 5.5f, 7.0f}) {
    EXPECT_NEAR(MeanWidth(JointVbitWidths(RandomAmplitudes(8, 96, 0.2f), {}, mean)),
                static_cast<double>(mean), 0.02);
  }
}

TEST(JointVbitWidths, LoudAndBusyExpertsGetMore) {
  const auto mean_of = [](const std::vector<uint8_t>& widths) { return MeanWidth({widths}); };
  const auto loud = JointVbitWidths(RandomAmplitudes(4, 64, 0.8f), {}, 4.25f);
  EXPECT_GT(mean_of(loud[3]), mean_of(loud[0]) + 1.0);
  const std::vector<uint64_t> counts = {1000, 10, 10, 10};
  const auto equal = RandomAmplitudes(4, 64, 0.0f);
  const auto busy = JointVbitWidths(equal, counts, 4.25f);
  EXPECT_GT(mean_of(busy[0]), mean_of(busy[1]) + 1.0);
  EXPECT_NEAR(MeanWidth(busy), 4.25, 0.02);
  EXPECT_NEAR(mean_of(JointVbitWidths(equal, {}, 4.25f)[0]), 4.25, 0.4);
}

TEST(ExpertTensorTest, FamilyLayerAndNumber) {
  const auto parsed = ParseExpertTensor("model.layers.12.mlp.experts.103.up_proj.weight");
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->family, "model.layers.12.mlp.experts.*.up_proj.weight");
  EXPECT_EQ(parsed->layer, 12u);
  EXPECT_EQ(parsed->expert, 103u);
  for (const char* other :
       {"model.layers.1.mlp.up_proj.weight", "model.layers.x.mlp.experts.1.up_proj.weight",
        "model.layers.1.mlp.experts.", "model.layers.1.mlp.experts.1", "lm_head.weight",
        "model.layers.1.mlp.shared_expert.up_proj.weight",
        "model.layers.99999999999.mlp.experts.1.up_proj.weight"}) {
    EXPECT_FALSE(ParseExpertTensor(other)) << other;
  }
}

}  // namespace
}  // namespace moewe::convert
