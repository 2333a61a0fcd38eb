// Skills grafted from a fine-tuned checkpoint, removed, exported, applied, compacted.
#include "convert/skill_edit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <optional>

#include "convert/convert.h"
#include "convert/skill_file.h"
#include "convert/skill_graft.h"
#include "convert/skill_test_files.h"
#include "engine/score.h"
#include "formats/cmf/skills.h"
#include "formats/verify.h"
#include "moewe/error.h"

namespace moewe::convert {
namespace {

namespace fs = std::filesystem;
using formats::CmfAppender;
using formats::CmfFile;
using formats::TensorView;

std::vector<model::TokenId> Ids(uint32_t seed, size_t count) {
  std::vector<model::TokenId> ids;
  for (size_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    ids.push_back(static_cast<model::TokenId>((seed >> 10) % 310));
  }
  return ids;
}

class SkillEditTest : public testing::Test {
 protected:
  SkillEditTest()
      : folder_(fs::temp_directory_path() / ("moewe_skills." + std::to_string(getpid()))) {
    fs::create_directories(folder_);
    Copy("dense_qwen3_q8", "m.cmf");
    WriteDonor(At("donor.cmf"));
  }
  ~SkillEditTest() override { fs::remove_all(folder_); }

  std::string At(const std::string& name) const { return (folder_ / name).string(); }
  void Copy(const std::string& golden, const std::string& name) const {
    fs::copy_file(GoldenFile(golden), At(name));
    fs::permissions(At(name), fs::perms::owner_read | fs::perms::owner_write);
  }
  std::unique_ptr<CmfAppender> Append(const std::string& name = "m.cmf") const {
    return CmfAppender::Open(At(name), [](const std::string&) {});
  }
  static SkillAddOptions Options() {
    SkillAddOptions options;
    options.id = "code";
    options.texts = {Ids(1, 200), Ids(2, 150)};
    options.subspace = {.phi_layer = 2, .rank = 3, .window = 32};
    return options;
  }
  SkillAddResult Add(const SkillAddOptions& options, const std::string& name = "m.cmf") {
    const auto donor = formats::OpenCheckpoint(At("donor.cmf"));
    const auto appender = Append(name);
    return AddSkill(appender.get(), *donor, options, pool_);
  }
  void ExpectSound(const std::string& name) {
    for (const auto& problem :
         formats::Verify(At(name), {}, &pool_, [](uint64_t, uint64_t) {}).problems) {
      ADD_FAILURE() << name << ": " << problem.message;
    }
  }
  double Perplexity(const std::string& name, const std::vector<model::TokenId>& ids,
                    const std::string& skill = "") {
    model::LoadOptions load;
    if (!skill.empty()) load.skills = {{skill, 1.0}};
    const auto model = model::Model::Load(formats::OpenCheckpoint(At(name)), load, &pool_);
    engine::ScoreOptions score;
    model::KvPool kv(model->config(), model::KvType::kF16, model::BlocksFor(score.window));
    return std::exp(engine::ScoreTokens(model.get(), &kv, &pool_, ids, score).MeanNll());
  }

  fs::path folder_;
  ThreadPool pool_{2};
};

TEST_F(SkillEditTest, TakesWhatChangedAsTheBackboneStoresIt) {
  const std::vector<uint8_t> before = golden::ReadBytes(At("m.cmf"));
  const SkillAddResult result = Add(Options());
  EXPECT_EQ(result.tensors, 4u);
  EXPECT_LT(result.largest_left, 0.01);  // a bound: the q8_row error of what did not change
  const std::vector<uint8_t> after = golden::ReadBytes(At("m.cmf"));
  EXPECT_TRUE(std::equal(before.begin() + 128, before.end(), after.begin() + 128));
  ExpectSound("m.cmf");
  const auto file = CmfFile::Open(At("m.cmf"));
  const auto donor = CmfFile::Open(At("donor.cmf"));
  const auto base = CmfFile::Open(GoldenFile("dense_qwen3_q8"));
  ASSERT_EQ(file->tensors().size(), base->tensors().size() + 4);
  for (const TensorView& tensor : base->tensors()) {
    EXPECT_EQ(file->Find(tensor.name)->file_offset, tensor.file_offset);
    const TensorView* skill = file->Find("skill.code." + tensor.name);
    ASSERT_EQ(skill != nullptr, IsTuned(tensor.name)) << tensor.name;
    if (skill == nullptr) continue;
    EXPECT_EQ(skill->dtype, tensor.dtype);
    const TensorView& tuned = *donor->Find(tensor.name);
    const std::vector<float> values =
        quant::Decode(tuned.dtype, tuned.bytes, tuned.matrix(), {"", tensor.name});
    EXPECT_TRUE(std::ranges::equal(skill->bytes, EncodedAs(tensor.dtype, values, tensor.matrix())));
  }
  ASSERT_EQ(file->contents().header.skills.size(), 1u);
  const formats::cmf::SkillRecord& record = file->contents().header.skills[0];
  EXPECT_EQ(record.id, "code");
  EXPECT_EQ(record.layers, (std::vector<uint32_t>{1, 2}));
  EXPECT_TRUE(record.quality.is_null());
  ASSERT_TRUE(record.selection);
  EXPECT_EQ(record.selection->phi_layer, 2u);
  EXPECT_EQ(record.selection->rank, 3u);
}

// What a tensor's own encoding does to it is no change, in whatever dtype the backbone is.
TEST_F(SkillEditTest, QuantizationIsNoChange) {
  for (const char* name : {"q8_2f", "q4", "q4t", "q4tp", "vbit", "f16"}) {
    SCOPED_TRACE(name);
    const auto backbone = CmfFile::Open(GoldenFile(std::string("dense_qwen3_") + name));
    const auto donor = formats::OpenCheckpoint(At("donor.cmf"));
    for (const GraftCandidate& candidate : PairWithDonor(*backbone, *donor, {})) {
      const double change = RelativeChange(candidate, 0.0, pool_, {"", candidate.donor.name});
      if (IsTuned(candidate.donor.name)) {
        EXPECT_GT(change, 0.05) << candidate.donor.name;
        EXPECT_LT(change, 0.6) << candidate.donor.name;
      } else {
        EXPECT_LT(change, 0.01) << candidate.donor.name;
      }
    }
  }
}

TEST_F(SkillEditTest, DTypeLayersAndThresholdAreChosen) {
  SkillAddOptions options = Options();
  options.dtype = DType::kQ4Tiled;
  options.layers = {{1}};
  EXPECT_EQ(Add(options).tensors, 3u);
  EXPECT_EQ(CmfFile::Open(At("m.cmf"))->Find("skill.code.model.layers.1.mlp.up_proj.weight")->dtype,
            DType::kQ4Tiled);
  options.id = "other";
  options.min_delta = 10.0;
  const std::vector<uint8_t> before = golden::ReadBytes(At("m.cmf"));
  EXPECT_EQ(Thrown([&] { Add(options); }), ErrorCode::kUsage);
  options.layers = {{7}};
  EXPECT_EQ(Thrown([&] { Add(options); }), ErrorCode::kUsage);
  options.layers.reset();
  options.min_delta = 0.01;
  options.texts = {Ids(1, 20)};
  EXPECT_EQ(Thrown([&] { Add(options); }), ErrorCode::kUsage);
  options.texts = Options().texts;
  for (const char* id : {"code", "", "none", "auto", "a=b", "a,b", "a\nb"}) {
    options.id = id;
    EXPECT_EQ(Thrown([&] { Add(options); }), ErrorCode::kUsage) << id;
  }
  options.id = "masked";
  options.input_mask_task = "nowhere";
  EXPECT_EQ(Thrown([&] { Add(options); }), ErrorCode::kUnknownName);
  EXPECT_EQ(golden::ReadBytes(At("m.cmf")), before);
}

TEST_F(SkillEditTest, ADonorOfAnotherBaseIsRefused) {
  Copy("masks_llama_f32", "llama.cmf");  // without the donor's q and k norms
  EXPECT_EQ(Thrown([&] { Add(Options(), "llama.cmf"); }), ErrorCode::kUsage);
  Copy("gfx.skill", "skill.cmf");
  EXPECT_EQ(Thrown([&] { Add(Options(), "skill.cmf"); }), ErrorCode::kUnsupported);
}

TEST_F(SkillEditTest, ASecondSkillLeavesTheFirst) {
  Add(Options());
  SkillAddOptions second = Options();
  second.id = "code.more";
  Add(second);
  ExpectSound("m.cmf");
  const auto both = CmfFile::Open(At("m.cmf"));
  EXPECT_EQ(both->contents().header.skills.size(), 2u);
  uint64_t bytes = 0;
  for (const TensorView& tensor : both->tensors()) {
    if (tensor.name.starts_with("skill.code.model.")) bytes += tensor.bytes.size();
  }
  EXPECT_EQ(RemoveSkill(Append().get(), "code"), bytes);
  ExpectSound("m.cmf");
  const auto one = CmfFile::Open(At("m.cmf"));
  ASSERT_EQ(one->contents().header.skills.size(), 1u);
  EXPECT_EQ(one->contents().header.skills[0].id, "code.more");
  EXPECT_EQ(one->Find("skill.code.model.layers.1.mlp.up_proj.weight"), nullptr);
  EXPECT_NE(one->Find("skill.code.more.model.layers.1.mlp.up_proj.weight"), nullptr);
  EXPECT_EQ(Thrown([&] { RemoveSkill(Append().get(), "code"); }), ErrorCode::kUnknownName);
}

TEST_F(SkillEditTest, RemovedAndCompactedItIsTheBase) {
  Add(Options());
  ConvertToCmf(*CmfFile::Open(At("m.cmf")), At("with.cmf"), {}, pool_);
  ExpectSound("with.cmf");
  const auto with = CmfFile::Open(At("with.cmf"));
  EXPECT_EQ(with->contents().header.skills.size(), 1u);
  EXPECT_NE(with->Find("skill.code.model.layers.1.mlp.up_proj.weight"), nullptr);
  RemoveSkill(Append().get(), "code");
  const auto base = CmfFile::Open(GoldenFile("dense_qwen3_q8"));
  EXPECT_EQ(CmfFile::Open(At("m.cmf"))->contents().envelope.directory_hash,
            base->contents().envelope.directory_hash);
  ConvertToCmf(*CmfFile::Open(At("m.cmf")), At("without.cmf"), {}, pool_);
  ConvertToCmf(*base, At("base.cmf"), {}, pool_);
  EXPECT_LT(fs::file_size(At("without.cmf")), fs::file_size(At("with.cmf")));
  EXPECT_EQ(CmfFile::Open(At("without.cmf"))->contents().envelope.directory_hash,
            CmfFile::Open(At("base.cmf"))->contents().envelope.directory_hash);
}

// The record's quality is that of a model which has the skill's tensors for its own; cut off and
// put on again, it is that model.
TEST_F(SkillEditTest, QualityIsThatOfTheSpecialist) {
  SkillAddOptions options = Options();
  options.eval = Ids(3, 120);
  options.eval_sha256 = "00";
  const Json quality = Add(options).record["quality"];
  const auto grown = CmfFile::Open(At("m.cmf"));
  WriteChanged(GoldenFile("dense_qwen3_q8"), At("specialist.cmf"), [&](const TensorView& tensor) {
    const TensorView* skill = grown->Find("skill.code." + tensor.name);
    return skill == nullptr ? std::vector<uint8_t>()
                            : std::vector<uint8_t>(skill->bytes.begin(), skill->bytes.end());
  });
  EXPECT_EQ(quality["metric"], "ppl");
  EXPECT_EQ(quality["overlaid"].get<double>(), Perplexity("specialist.cmf", options.eval));
  EXPECT_EQ(quality["overlaid"].get<double>(), Perplexity("m.cmf", options.eval, "code"));
  EXPECT_EQ(quality["backbone"].get<double>(), Perplexity("m.cmf", options.eval));
  EXPECT_NE(quality["backbone"], quality["overlaid"]);

  const auto specialist = CmfFile::Open(At("specialist.cmf"));
  const auto base = CmfFile::Open(GoldenFile("dense_qwen3_q8"));
  EXPECT_EQ(ExportSkill(*specialist, *base, At("s.cmf"), {.id = "s"}).tensors, 4u);
  ExpectSound("s.cmf");
  const auto skill = CmfFile::Open(At("s.cmf"));
  EXPECT_EQ(Thrown([&] { model::Model::Load(formats::OpenCheckpoint(At("s.cmf")), {}, &pool_); }),
            ErrorCode::kParse);
  EXPECT_LT(fs::file_size(At("s.cmf")), fs::file_size(At("specialist.cmf")) / 3);
  ApplySkill(*base, *skill, At("applied.cmf"), false, {});
  ExpectSound("applied.cmf");
  const auto applied = CmfFile::Open(At("applied.cmf"));
  EXPECT_EQ(applied->contents().envelope.directory_hash,
            specialist->contents().envelope.directory_hash);
}

TEST(SkillSubspace, EigenvectorsOfAKnownMatrix) {
  // R diag(5, 2, -1) R^T with R a rotation of known columns.
  const double c = 0.6;
  const double s = 0.8;
  const std::vector<std::vector<double>> columns = {
      {c, s, 0}, {-s * c, c * c, s}, {s * s, -s * c, c}};
  const std::vector<double> values = {5.0, 2.0, -1.0};
  std::vector<std::vector<double>> matrix(3, std::vector<double>(3, 0.0));
  for (size_t v = 0; v < 3; ++v) {
    for (size_t i = 0; i < 3; ++i) {
      for (size_t k = 0; k < 3; ++k) matrix[i][k] += values[v] * columns[v][i] * columns[v][k];
    }
  }
  const Eigen eigen = SymmetricEigen(matrix);
  for (size_t v = 0; v < 3; ++v) {
    EXPECT_NEAR(eigen.values[v], values[v], 1e-12);
    EXPECT_NEAR(std::abs(std::inner_product(columns[v].begin(), columns[v].end(),
                                            eigen.vectors[v].begin(), 0.0)),
                1.0, 1e-12);
  }
}

TEST_F(SkillEditTest, TheBasisIsOrthonormalAndStrongestFirst) {
  const std::shared_ptr<const formats::Checkpoint> model = formats::OpenCheckpoint(At("m.cmf"));
  const std::vector<std::vector<model::TokenId>> texts = {Ids(1, 400)};
  SubspaceOptions options{.phi_layer = 1, .rank = 5, .window = 32};
  const auto many = FitSubspace(model, texts, options, &pool_);
  ASSERT_EQ(many.rank, 5u);
  const size_t hidden = many.mean.size();
  for (size_t a = 0; a < 5; ++a) {
    for (size_t b = 0; b <= a; ++b) {
      const double dot =
          std::inner_product(many.basis.begin() + static_cast<ptrdiff_t>(a * hidden),
                             many.basis.begin() + static_cast<ptrdiff_t>((a + 1) * hidden),
                             many.basis.begin() + static_cast<ptrdiff_t>(b * hidden), 0.0);
      EXPECT_NEAR(dot, a == b ? 1.0 : 0.0, 1e-5);
    }
  }
  options.rank = 2;
  const auto few = FitSubspace(model, texts, options, &pool_);
  EXPECT_TRUE(std::equal(few.basis.begin(), few.basis.end(), many.basis.begin()));
  // Windows that are all alike span nothing.
  const std::vector<std::vector<model::TokenId>> alike(3, Ids(1, 20));
  EXPECT_EQ(Thrown([&] { FitSubspace(model, alike, options, &pool_); }), ErrorCode::kUsage);
}

}  // namespace
}  // namespace moewe::convert
