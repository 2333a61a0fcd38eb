// What a task mask becomes for a model's layers: lists of what is live, and none where all is.
#include "model/task_mask.h"

#include <gtest/gtest.h>

#include <string>

#include "formats/checkpoint.h"
#include "golden.h"
#include "model/config.h"

namespace moewe::model {
namespace {

TaskMask Select(const std::string& name, const std::string& task) {
  const auto file = formats::OpenCheckpoint(golden::Path("cmf/files/" + name + ".cmf").string());
  const ModelConfig config = ReadConfig(*file);
  return SelectTaskMask(*file, config, BindWeights(*file, config, TensorHashes::kIgnore), task);
}

// Without a list a layer takes the way of a model without a mask.
TEST(TaskMaskTest, AllOnesLeavesNoLists) {
  const TaskMask mask = Select("masks_llama_f32", "general");
  ASSERT_EQ(mask.visits.size(), 3u);
  for (const LayerMask& layer : mask.visits) {
    EXPECT_TRUE(layer.live);
    EXPECT_FALSE(layer.no_neurons);
    EXPECT_FALSE(layer.no_heads);
    EXPECT_TRUE(layer.neurons.empty());
    EXPECT_TRUE(layer.heads.empty());
    EXPECT_TRUE(layer.experts.empty());
  }
}

// The parts that a mask does not restrict have none either, and those that it does have theirs.
TEST(TaskMaskTest, OnlyWhatIsRestrictedHasLists) {
  for (const LayerMask& layer : Select("masks_llama_f32", "ffn_only").visits) {
    EXPECT_FALSE(layer.neurons.empty());
    EXPECT_TRUE(layer.heads.empty());
  }
  const TaskMask experts = Select("moe_qwen2_q8_expertmask", "wide");
  ASSERT_EQ(experts.visits.size(), 3u);
  for (size_t i = 0; i < experts.visits.size(); ++i) {
    EXPECT_TRUE(experts.visits[i].neurons.empty());
    EXPECT_TRUE(experts.visits[i].heads.empty());
    EXPECT_EQ(experts.visits[i].experts.size(), i == 1 ? 6u : 0u);  // layers 0 and 2 are dense
  }
}

}  // namespace
}  // namespace moewe::model
