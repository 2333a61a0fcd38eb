// A Hugging Face folder converted at f32 computes the same as the folder itself, bit for bit, and
// so agrees with the golden values wherever the folder does: every family of tests/golden/hf.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "convert/convert.h"
#include "hf_golden.h"
#include "model/config.h"
#include "model/kv_cache.h"
#include "model/model.h"
#include "moewe/error.h"

namespace moewe::convert {
namespace {

using model::Model;
using model::SequenceChunk;

// Of all positions, and of a prediction head, if there is one.
std::vector<float> Logits(const std::string& path, std::span<const model::TokenId> ids,
                          ThreadPool* threads) {
  model::LoadOptions options;
  options.activations = kernels::Activations::kF32;
  options.verify = model::Verify::kFull;
  options.draft_head = true;
  const auto loaded = Model::Load(formats::OpenCheckpoint(path), options, threads);
  model::KvPool pool(loaded->config(), model::KvType::kF32, 4);
  model::Sequence sequence(&pool);
  SequenceChunk chunk;
  chunk.sequence = &sequence;
  chunk.tokens = ids;
  chunk.logits = SequenceChunk::Logits::kAll;
  std::vector<float> logits;
  loaded->Forward({&chunk, 1}, &logits);
  if (loaded->has_draft_head()) {
    model::TokenId draft = 0;
    sequence.Reserve(1);
    EXPECT_EQ(loaded->Draft(&sequence, ids[0], {&draft, 1}, &logits), 1u);
  }
  return logits;
}

class RoundTrip : public testing::TestWithParam<std::string> {};

TEST_P(RoundTrip, AFileAtF32IsTheSameModel) {
  const golden::HfGolden golden(GetParam());
  const auto source = formats::OpenCheckpoint(golden.folder.string());
  try {
    model::ReadConfig(*source);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
    GTEST_SKIP() << error.what();
  }
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() /
      ("moewe_round_trip." + std::to_string(getpid()) + "." + GetParam() + ".cmf");
  ThreadPool threads(2);
  ConvertOptions options;
  options.quant = DType::kF32;
  ConvertToCmf(*source, file.string(), options, threads);
  const std::vector<model::TokenId> ids = golden.Ids("p70");
  const std::vector<float> converted = Logits(file.string(), ids, &threads);
  std::filesystem::remove(file);
  ASSERT_FALSE(converted.empty());
  EXPECT_EQ(converted, Logits(golden.folder.string(), ids, &threads));
}

INSTANTIATE_TEST_SUITE_P(All, RoundTrip, testing::ValuesIn(golden::HfFamilies()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace moewe::convert
