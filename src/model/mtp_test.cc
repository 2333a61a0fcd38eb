// Prediction heads in f32 against the goldens: both readings of the hidden state, however the
// tokens before came.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "hf_golden.h"
#include "model/canonical.h"
#include "model/kv_cache.h"
#include "model/model.h"
#include "model/outline.h"
#include "model/weights.h"
#include "moewe/error.h"
#include "thrown.h"

namespace moewe::model {
namespace {

constexpr double kTolerance = 2e-4;  // of the logits' standard deviation

struct Reading {
  const char* family;
  bool normed;
};

class MtpHead : public testing::TestWithParam<Reading> {
 protected:
  std::unique_ptr<Model> Load(const std::string& path, bool normed) {
    LoadOptions options;
    options.activations = kernels::Activations::kF32;
    options.draft_head = true;
    const std::shared_ptr<const formats::Checkpoint> checkpoint = formats::OpenCheckpoint(path);
    ModelConfig config = ReadConfig(*checkpoint);
    config.mtp_runs = true;
    config.mtp_reads_normed = normed;
    return Model::Load(ModelOutline(checkpoint, config), options, &threads_);
  }

  ThreadPool threads_{2};
};

// Rows of logits: what the head says after ids[0], ids[0..1], ...; `chunk` tokens a step.
std::vector<float> HeadLogits(Model* model, std::span<const TokenId> ids, size_t chunk) {
  std::vector<float> all;
  for (size_t p = 0; p + 1 < ids.size(); ++p) {
    KvPool pool(model->config(), KvType::kF32, 4);
    Sequence sequence(&pool);
    std::vector<float> logits;
    for (size_t at = 0; at <= p; at += chunk) {
      const SequenceChunk step{&sequence, ids.subspan(at, std::min(chunk, p + 1 - at)),
                               SequenceChunk::Logits::kNone};
      model->Forward({&step, 1}, &logits);
    }
    sequence.Reserve(1);
    TokenId draft = -1;
    EXPECT_EQ(model->Draft(&sequence, ids[p + 1], {&draft, 1}, &all), 1u);
    const auto row = all.end() - static_cast<ptrdiff_t>(model->config().vocab_size);
    EXPECT_EQ(draft, std::max_element(row, all.end()) - row);
    EXPECT_EQ(sequence.length(), p + 1);
  }
  return all;
}

TEST_P(MtpHead, GivesTheLogitsOfItsReference) {
  const golden::HfGolden golden(GetParam().family);
  const auto model = Load(golden.folder.string(), GetParam().normed);
  ASSERT_TRUE(model->has_draft_head());
  const auto ids = golden.json["mtp"]["ids"].get<std::vector<TokenId>>();
  const std::vector<float> expected =
      golden.Array(GetParam().normed ? "mtp.logits_post_norm" : "mtp.logits_pre_norm");
  const std::vector<float> whole = HeadLogits(model.get(), ids, 16);
  ASSERT_EQ(whole.size(), expected.size());
  const double tolerance = kTolerance * golden.json["logit_std"].get<double>();
  for (size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(whole[i], expected[i], tolerance) << i;
  // Bit for bit however the tokens before came.
  EXPECT_EQ(HeadLogits(model.get(), ids, 1), whole);
  EXPECT_EQ(HeadLogits(model.get(), ids, 3), whole);
}

// An incomplete head is an error where it shall run, and carried where not; so is one too many of
// its tensors.
TEST(IncompleteMtpHead, IsRefusedByNameUnlessItIsOnlyCarried) {
  const golden::HfGolden golden("qwen3_next");
  const std::shared_ptr<const formats::Checkpoint> whole =
      formats::OpenCheckpoint(golden.folder.string());
  ModelConfig config = ReadConfig(*whole);
  config.mtp_runs = true;
  const auto bind = [&](const std::string& without, const std::string& renamed) {
    std::vector<formats::TensorView> tensors;
    for (formats::TensorView& tensor : CanonicalTensors(*whole, config)) {
      if (tensor.name == without) {
        if (renamed.empty()) continue;
        tensor.name = renamed;
      }
      tensors.push_back(std::move(tensor));
    }
    BindTensors(*whole, config, std::move(tensors), TensorHashes::kIgnore, BytesToRead::kAll);
  };
  EXPECT_NO_THROW(bind("", ""));
  for (const char* role : {"eh_proj.weight", "enorm.weight", "hnorm.weight", "norm.weight",
                           "layers.0.self_attn.q_proj.weight", "layers.0.input_layernorm.weight"}) {
    const std::string name = std::string("model.mtp.") + role;
    std::string message;
    EXPECT_EQ(Thrown([&] { bind(name, ""); }, &message), ErrorCode::kMissingTensor);
    EXPECT_NE(message.find(name), std::string::npos) << message;
  }
  const std::string shared = "model.mtp.layers.0.mlp.shared_expert.gate_proj.weight";
  EXPECT_THROW(bind(shared, ""), Error);
  EXPECT_THROW(bind("model.mtp.norm.weight", "model.mtp.other.weight"), Error);
  config.mtp_runs = false;
  EXPECT_NO_THROW(bind("model.mtp.eh_proj.weight", ""));
}

INSTANTIATE_TEST_SUITE_P(
    Families, MtpHead,
    testing::Values(Reading{"qwen3_next", true}, Reading{"qwen3_next", false},
                    Reading{"qwen3_5", true}, Reading{"qwen3_5", false},
                    Reading{"qwen3_5_moe", true}, Reading{"qwen3_5_moe", false},
                    Reading{"deepseek_v3", true}, Reading{"deepseek_v3", false}),
    [](const auto& test) {
      return std::string(test.param.family) + (test.param.normed ? "_normed" : "_as_it_is");
    });

}  // namespace
}  // namespace moewe::model
