// Every family with experts goes into a vault and comes out as the same model: the config is the
// one that its config.json gives, and the logits are bit for bit those of its own tensors with the
// experts replaced by the values that the vault's codec gives them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convert/to_smoe.h"
#include "formats/smoe/smoe_vault.h"
#include "hf_golden.h"
#include "memory_checkpoint.h"
#include "model/canonical.h"
#include "model/config_smoe.h"
#include "model/kv_cache.h"
#include "model/model.h"
#include "moewe/error.h"
#include "quant/codec.h"

namespace moewe::convert {
namespace {

namespace fs = std::filesystem;
using formats::TensorView;
using golden::HfGolden;

// Those of tests/golden/hf that go into a vault.
const std::set<std::string> kFamilies = {
    "mixtral",    "olmoe",        "qwen2_moe",   "qwen3_moe",        "granitemoe",    "glm4_moe",
    "minimax_m2", "ernie4_5_moe", "deepseek_v2", "deepseek_v2_lite", "deepseek_v3",   "laguna",
    "lfm2_moe",   "qwen3_next",   "qwen3_5_moe", "kimi_linear",      "bailing_hybrid"};

// Those whose experts no vault can hold.
const std::set<std::string> kGatedOtherwise = {"gpt_oss"};

bool IsExpert(const std::string& name) { return name.find(".mlp.experts.") != name.npos; }

std::vector<uint8_t> AsF32(const TensorView& tensor) {
  const std::vector<float> values =
      quant::Decode(tensor.dtype, tensor.bytes, tensor.matrix(), {"", tensor.name});
  std::vector<uint8_t> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::vector<float> Logits(std::unique_ptr<formats::Checkpoint> checkpoint,
                          const std::vector<int32_t>& ids) {
  ThreadPool threads(1);
  model::LoadOptions options;
  options.activations = kernels::Activations::kF32;
  const auto model = model::Model::Load(std::move(checkpoint), options, &threads);
  model::KvPool pool(model->config(), model::KvType::kF32, 16);
  model::Sequence sequence(&pool);
  model::SequenceChunk part;
  part.sequence = &sequence;
  part.tokens = ids;
  part.logits = model::SequenceChunk::Logits::kAll;
  std::vector<float> logits;
  model->Forward({&part, 1}, &logits);
  return logits;
}

// A folder of tests/golden/hf with one of the two spellings of its config.
struct Source {
  std::string family;
  const char* config;
};

std::vector<Source> Sources() {
  std::vector<Source> sources;
  for (const std::string& family : golden::HfFamilies()) {
    for (const char* config : {"config.json", "config.v5.json"}) {
      if (fs::exists(golden::Path("hf/" + family) / config)) sources.push_back({family, config});
    }
  }
  return sources;
}

class SmoeFamily : public testing::TestWithParam<Source> {
 protected:
  SmoeFamily()
      : folder_(fs::temp_directory_path() / ("moewe_smoe_family." + std::to_string(getpid()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "hf");
    const fs::path from = golden::Path("hf/" + GetParam().family);
    fs::copy_file(from / GetParam().config, folder_ / "hf/config.json");
    fs::create_symlink(from / "model.safetensors", folder_ / "hf/model.safetensors");
  }
  ~SmoeFamily() override { fs::remove_all(folder_); }

  std::unique_ptr<formats::Checkpoint> Open() const {
    return formats::OpenCheckpoint((folder_ / "hf").string());
  }
  // Nothing for families that moewe does not run and for those without experts.
  std::unique_ptr<model::ModelConfig> Config() const {
    try {
      auto config = std::make_unique<model::ModelConfig>(model::ReadConfig(*Open()));
      config->mtp_layers = 0;  // which a vault has no place for
      if (config->has_moe) return config;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
    }
    return nullptr;
  }
  std::string Make(uint32_t bits, bool plain) const {
    const fs::path vault = folder_ / "m.smoe";
    SmoeOptions options;
    options.bits = bits;
    options.plain_scout = plain;
    ThreadPool pool(1);
    ConvertToSmoe(*Open(), vault.string(), options, pool);
    return vault.string();
  }

  // The folder's own model, with the experts of `vault`.
  std::unique_ptr<formats::Checkpoint> WithExpertsOf(const formats::SmoeVault& vault,
                                                     const model::ModelConfig& config) const {
    const auto source = Open();
    auto result = std::make_unique<MemoryCheckpoint>(
        formats::CheckpointKind::kCmf, nlohmann::ordered_json{{"arch", model::ToCmfArch(config)}});
    for (const TensorView& tensor : model::CanonicalTensors(*source, config)) {
      if (tensor.name.starts_with("model.mtp.")) continue;  // which a vault has no place for
      if (!IsExpert(tensor.name)) {
        result->Add(tensor.name, tensor.dtype, tensor.shape,
                    {tensor.bytes.begin(), tensor.bytes.end()});
        continue;
      }
      const TensorView* stored = vault.Find(tensor.name);
      EXPECT_NE(stored, nullptr) << tensor.name;
      if (stored == nullptr) continue;
      EXPECT_EQ(stored->shape, tensor.shape);
      result->Add(tensor.name, DType::kF32, tensor.shape, AsF32(*stored));
    }
    return result;
  }

  fs::path folder_;
};

TEST_P(SmoeFamily, IsTheSameModelInAVault) {
  const auto config = Config();
  if (!config) {
    ASSERT_FALSE(kFamilies.contains(GetParam().family));
    GTEST_SKIP() << "no mixture of experts that moewe runs";
  }
  if (kGatedOtherwise.contains(GetParam().family)) {
    try {
      Make(4, false);
      ADD_FAILURE() << "a vault's readers take every gate for SiLU";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
    }
    return;
  }
  const HfGolden golden(GetParam().family);
  const std::vector<int32_t> ids = golden.Ids("p70");
  for (const uint32_t bits : {4u, 2u}) {
    SCOPED_TRACE(std::to_string(bits) + " bits");
    const std::string path = Make(bits, false);
    auto vault = formats::SmoeVault::Open(path);
    model::ModelConfig read = model::ReadConfig(*vault);
    EXPECT_TRUE(read == *config) << model::ToCmfArch(read) << "\n" << model::ToCmfArch(*config);
    const std::vector<float> expected = Logits(WithExpertsOf(*vault, *config), ids);
    EXPECT_EQ(Logits(std::move(vault), ids), expected);
  }
}

// A plain Scout is refused by name where the arch block can't say the math, and else enough.
TEST_P(SmoeFamily, PlainScoutsSayItOrAreRefused) {
  const auto config = Config();
  if (!config) {
    ASSERT_FALSE(kFamilies.contains(GetParam().family));
    GTEST_SKIP() << "no mixture of experts that moewe runs";
  }
  if (kGatedOtherwise.contains(GetParam().family)) GTEST_SKIP() << "as without --plain-scout";
  const std::set<std::string> expressible = {"mixtral", "olmoe", "qwen2_moe", "qwen3_moe"};
  std::string reason;
  EXPECT_EQ(model::ArchBlockHolds(*config, &reason), expressible.contains(GetParam().family));
  if (!reason.empty()) {
    try {
      Make(4, true);
      ADD_FAILURE() << "the Scout does not say " << reason;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      EXPECT_NE(std::string_view(error.what()).find(reason), std::string_view::npos)
          << error.what();
    }
    EXPECT_FALSE(fs::exists(folder_ / "m.smoe"));
    EXPECT_FALSE(fs::exists(folder_ / "m.scout.safetensors"));
    return;
  }
  const std::vector<int32_t> ids = HfGolden(GetParam().family).Ids("p70");
  const std::vector<float> plain = Logits(formats::SmoeVault::Open(Make(4, true)), ids);
  EXPECT_EQ(plain, Logits(formats::SmoeVault::Open(Make(4, false)), ids));
}

INSTANTIATE_TEST_SUITE_P(Golden, SmoeFamily, testing::ValuesIn(Sources()),
                         [](const auto& instance) {
                           const bool newer =
                               instance.param.config != std::string_view("config.json");
                           return instance.param.family + (newer ? "_v5" : "");
                         });

TEST(SmoeFamilies, AllAreCovered) {
  std::set<std::string> families;
  for (const Source& source : Sources()) families.insert(source.family);
  for (const std::string& family : kFamilies) {
    EXPECT_TRUE(families.contains(family)) << family;
  }
}

}  // namespace
}  // namespace moewe::convert
