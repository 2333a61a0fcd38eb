// Bytes a token reads: of a whole model, under masks, and of files cut like the masks.
#include "model/token_bytes.h"

#include <gtest/gtest.h>

#include "golden.h"
#include "model/model.h"

namespace moewe::model {
namespace {

uint64_t BytesPerToken(const std::string& file, const std::string& task) {
  static ThreadPool pool(1);
  LoadOptions options;
  options.task = task;
  const auto checkpoint = std::shared_ptr<const formats::Checkpoint>(
      formats::OpenCheckpoint(golden::Path("cmf/files/" + file + ".cmf").string()));
  return Model::Load(checkpoint, options, &pool)->weight_bytes_per_token();
}

TEST(TokenBytesTest, AMaskReadsLess) {
  const uint64_t whole = BytesPerToken("masks_llama_f32", "none");
  for (const char* task : {"ffn_only", "heads", "gated"}) {
    EXPECT_LT(BytesPerToken("masks_llama_f32", task), whole) << task;
  }
  EXPECT_EQ(BytesPerToken("masks_llama_f32", "general"), whole);  // everything is on
  // As much as a file that has just those experts: 8 and then fewer rows of the router, and the
  // same number of experts of one size a token.
  const uint64_t experts = BytesPerToken("moe_qwen3_q4tp_expertmask", "none");
  const uint64_t wide = BytesPerToken("moe_qwen3_q4tp_expertmask", "wide");
  EXPECT_EQ(wide, BytesPerToken("moe_qwen3_q4tp_moedefrag", "none"));
  EXPECT_EQ(experts - wide, 7u * 64 * 2);  // rows of three f16 routers
}

TEST(TokenBytesTest, EveryPassReadsItsLayers) {
  const uint64_t looped = BytesPerToken("loop_masks", "none");
  const auto file = formats::OpenCheckpoint(golden::Path("cmf/files/loop_masks.cmf").string());
  uint64_t layers = 0;
  uint64_t head = 0;
  for (const formats::TensorView& tensor : file->tensors()) {
    const uint64_t bytes = tensor.matrix().rows * tensor.matrix().cols * 4;  // all f32 here
    if (tensor.name.starts_with("model.layers.")) {
      layers += bytes;
    } else if (tensor.name != "model.embed_tokens.weight") {
      head += bytes;
    }
  }
  const bool tied = file->Find("lm_head.weight") == nullptr;
  const formats::TensorView& embed = *file->Find("model.embed_tokens.weight");
  const uint64_t row = embed.shape[1] * 4;
  EXPECT_EQ(looped, 2 * layers + head + row + (tied ? embed.shape[0] * row : 0));
}

}  // namespace
}  // namespace moewe::model
