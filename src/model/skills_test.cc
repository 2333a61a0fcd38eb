// Skills at run time: who is chosen by a prompt, what takes whose place, and what is refused.
// (Logits of skills and blends are in golden_test.cc.)
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fake_disk.h"
#include "formats/cmf/cmf_file.h"
#include "formats/cmf/writer.h"
#include "formats/verify.h"
#include "golden.h"
#include "model/expert_usage.h"
#include "model/memory_plan.h"
#include "model/model.h"
#include "model/outline.h"
#include "model/skill_router.h"
#include "model/skilled_checkpoint.h"
#include "model/trunk_memory.h"
#include "moewe/error.h"

namespace moewe::model {
namespace {

namespace fs = std::filesystem;
using formats::CmfFile;
using formats::TensorView;

std::string File(const std::string& name) {
  return golden::Path("cmf/files/" + name + ".cmf").string();
}

std::optional<ErrorCode> Thrown(const std::function<void()>& action, std::string* text = nullptr) {
  try {
    action();
  } catch (const Error& error) {
    if (text != nullptr) *text = error.what();
    return error.code();
  }
  return std::nullopt;
}

struct NewTensor {
  std::string name;
  std::vector<uint64_t> shape;
  std::vector<float> values;
};

class SkillsTest : public testing::Test {
 protected:
  SkillsTest() : folder_(fs::temp_directory_path() / ("moewe_skills." + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~SkillsTest() override { fs::remove_all(folder_); }

  // A golden file with other skills in its header and more tensors, or other values for those that
  // it has, in f32.
  std::string Write(const std::string& name, const std::string& source, const Json& skills,
                    const std::vector<NewTensor>& tensors) const {
    const auto file = CmfFile::Open(File(source));
    formats::CmfPlan plan;
    plan.header = file->config();
    plan.header["skills"] = skills;
    std::vector<Bytes> bytes;
    const auto changed = [&](const std::string& tensor) {
      return std::find_if(tensors.begin(), tensors.end(),
                          [&](const NewTensor& other) { return other.name == tensor; });
    };
    for (const TensorView& tensor : file->tensors()) {
      if (changed(tensor.name) != tensors.end()) continue;
      plan.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes.size()});
      bytes.push_back(tensor.bytes);
    }
    for (const NewTensor& tensor : tensors) {
      const size_t size = tensor.values.size() * sizeof(float);
      plan.tensors.push_back({tensor.name, DType::kF32, tensor.shape, size});
      bytes.emplace_back(reinterpret_cast<const uint8_t*>(tensor.values.data()), size);
    }
    const std::string path = (folder_ / name).string();
    const auto writer = formats::CmfWriter::Create(std::move(plan), path);
    for (size_t i = 0; i < bytes.size(); ++i) writer->Write(i, bytes[i]);
    writer->Finish();
    return path;
  }

  // The stored tensor times `factor`, under another name.
  static NewTensor Scaled(const std::string& source, const std::string& tensor, float factor,
                          const std::string& new_name) {
    const auto file = CmfFile::Open(File(source));
    const TensorView& view = *file->Find(tensor);
    std::vector<float> values = quant::Decode(view.dtype, view.bytes, view.matrix(), {});
    for (float& value : values) value *= factor;
    return {new_name, view.shape, std::move(values)};
  }

  std::unique_ptr<Model> Load(const std::string& path, const std::string& skills,
                              LoadOptions options = {}) {
    const std::shared_ptr<const formats::Checkpoint> file = formats::OpenCheckpoint(path);
    options.activations = kernels::Activations::kF32;
    if (options.task.empty()) options.task = "none";
    options.skills = ParseSkillChoice(skills, *file);
    return Model::Load(file, options, &threads_);
  }

  static std::vector<float> Logits(Model* model) {
    const std::vector<TokenId> ids = {110, 47, 73, 178, 26};
    KvPool pool(model->config(), KvType::kF32, 1);
    Sequence sequence(&pool);
    SequenceChunk chunk;
    chunk.sequence = &sequence;
    chunk.tokens = ids;
    chunk.logits = SequenceChunk::Logits::kAll;
    std::vector<float> logits;
    model->Forward({&chunk, 1}, &logits);
    return logits;
  }
  std::vector<float> Logits(const std::string& path, const std::string& skills) {
    return Logits(Load(path, skills).get());
  }

  ThreadPool threads_{2};
  fs::path folder_;
};

class RoutingGolden : public SkillsTest, public testing::WithParamInterface<const char*> {};

TEST_P(RoutingGolden, PhiAndEnergiesAreThoseOfTheDocument) {
  const std::string name = GetParam();
  const nlohmann::json expected =
      golden::ReadJson(golden::Path("cmf/files/" + name + ".expected.json"));
  const std::shared_ptr<const formats::Checkpoint> file = formats::OpenCheckpoint(File(name));
  SkillRouter router(file, {}, &threads_);
  for (const nlohmann::json& prompt : expected["routing"]) {
    const auto ids = prompt["ids"].get<std::vector<TokenId>>();
    for (const auto& [layer, values] : prompt["phi"].items()) {
      ResidualReader reader(file, {static_cast<uint32_t>(std::stoul(layer))}, {}, &threads_);
      const auto phi = values.get<std::vector<double>>();
      const std::vector<double> means = reader.Means(ids, 256).front();
      ASSERT_EQ(means.size(), phi.size());
      for (size_t i = 0; i < phi.size(); ++i) EXPECT_NEAR(means[i], phi[i], 2e-5) << i;
    }
    const std::vector<SkillEnergy> energies = router.Route(ids, 256);
    ASSERT_EQ(energies.size(), prompt["golden_E"].size());
    for (size_t i = 0; i < energies.size(); ++i) {
      EXPECT_EQ(energies[i].id, prompt["golden_E"][i]["id"].get<std::string>());
      EXPECT_NEAR(energies[i].energy, prompt["golden_E"][i]["E"].get<double>(), 1e-5);
    }
    // Token by token the same bits.
    const std::vector<SkillEnergy> slowly = router.Route(ids, 1);
    for (size_t i = 0; i < energies.size(); ++i) EXPECT_EQ(slowly[i].energy, energies[i].energy);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RoutingGolden, testing::Values("skills_1", "skills_2"),
                         [](const auto& test) { return std::string(test.param); });

TEST_F(SkillsTest, RoutingNeedsASelection) {
  const auto route = [&](const std::string& path) {
    SkillRouter(formats::OpenCheckpoint(path), {}, &threads_);
  };
  EXPECT_EQ(Thrown([&] { route(File("skill_base")); }), ErrorCode::kUnsupported);
  EXPECT_EQ(Thrown([&] { route(File("applied")); }), ErrorCode::kUnsupported);
  EXPECT_EQ(Thrown([&] { route(File("gfx.skill")); }), ErrorCode::kUnsupported);
  Json skills = CmfFile::Open(File("skills_1"))->config()["skills"];
  skills[0]["selection"]["metric"] = "cosine";
  EXPECT_EQ(Thrown([&] { route(Write("metric.cmf", "skills_1", skills, {})); }),
            ErrorCode::kUnsupported);
  SkillRouter router(formats::OpenCheckpoint(File("skills_1")), {}, &threads_);
  EXPECT_EQ(Thrown([&] { router.Route({}, 1); }), ErrorCode::kUsage);
}

TEST_F(SkillsTest, EnergyIsWhatTheSubspaceDoesNotExplain) {
  formats::cmf::SkillSelection selection;
  selection.rank = 1;
  selection.mean = {1, 0, 0};
  selection.basis = {0, 1, 0};
  // r = (1, 3, 2), of which the basis explains 3: (1 + 4) / (4 + 9 + 4).
  EXPECT_DOUBLE_EQ(EnergyOf(selection, std::vector<double>{2, 3, 2}), 5.0 / 17.0);
  // A basis longer than 1 explains more than there is.
  selection.basis = {0, 2, 0};
  EXPECT_EQ(EnergyOf(selection, std::vector<double>{1, 3, 0}), 0.0);
}

TEST(SkillChoiceTest, TheNearestOrTheTwoNearest) {
  const std::vector<SkillEnergy> energies = {{"a", 0.2, 1}, {"b", 0.6, 2}, {"c", 0.7, 1}};
  EXPECT_EQ(ChooseSkills(energies, std::nullopt), (SkillChoice{{"a", 1.0}}));
  const SkillChoice blend = ChooseSkills(energies, 0.4);
  ASSERT_EQ(blend.size(), 2u);
  const double a = std::exp(-0.2 / 0.4), b = std::exp(-0.6 / 0.4);
  EXPECT_NEAR(blend[0].weight, a / (a + b), 1e-12);
  EXPECT_NEAR(blend[1].weight, b / (a + b), 1e-12);
  // So cold that the second one's weight is no number any more.
  EXPECT_EQ(ChooseSkills(energies, 1e-6), (SkillChoice{{"a", 1.0}}));
  EXPECT_EQ(ChooseSkills({energies.data(), 1}, 0.4), (SkillChoice{{"a", 1.0}}));
  EXPECT_TRUE(ChooseSkills({}, 0.4).empty());
}

TEST_F(SkillsTest, ChoicesAreNamesOrWeights) {
  const auto file = formats::OpenCheckpoint(File("skills_2"));
  const auto parse = [&](const std::string& text) { return ParseSkillChoice(text, *file); };
  EXPECT_TRUE(parse("").empty());
  EXPECT_TRUE(parse("none").empty());
  EXPECT_EQ(parse("prose"), (SkillChoice{{"prose", 1.0}}));
  EXPECT_EQ(parse("code=0.6,prose=0.4"), (SkillChoice{{"code", 0.6}, {"prose", 0.4}}));
  EXPECT_EQ(parse("code=1"), (SkillChoice{{"code", 1.0}}));
  EXPECT_EQ(parse("code=0,prose=1"), (SkillChoice{{"prose", 1.0}}));
  EXPECT_EQ(SkillChoiceText(parse("code=0.625,prose=0.375")), "code=0.625,prose=0.375");
  EXPECT_EQ(SkillChoiceText(parse("code")), "code");
  EXPECT_EQ(SkillChoiceText({}), "none");
  std::string message;
  EXPECT_EQ(Thrown([&] { parse("nope"); }, &message), ErrorCode::kUnknownName);
  EXPECT_NE(message.find("'code', 'prose'"), std::string::npos) << message;
  EXPECT_EQ(Thrown([&] { parse("code=0.5,nope=0.5"); }), ErrorCode::kUnknownName);
  for (const char* text : {"code=0.5", "code=0.6,prose=0.6", "code=0.5,code=0.5", "code=x,prose=1",
                           "code=-1,prose=2", "code=0.5,", "code=nan,prose=1", "code=0.5,prose"}) {
    EXPECT_EQ(Thrown([&] { parse(text); }), ErrorCode::kUsage) << text;
  }
  const auto plain = formats::OpenCheckpoint(File("skill_base"));
  EXPECT_EQ(Thrown([&] { ParseSkillChoice("a", *plain); }), ErrorCode::kUnknownName);
}

TEST_F(SkillsTest, ASkillOfAnExpertTakesItsPlace) {
  const std::string base = "moe_qwen2_f32";
  const std::string expert = "model.layers.1.mlp.experts.0.down_proj.weight";
  const std::string norm = "model.layers.0.input_layernorm.weight";
  const Json skills = Json::array({{{"id", "x.model"}}, {{"id", "x"}}});
  const std::string skilled = Write("skilled.cmf", base, skills,
                                    {Scaled(base, expert, 1.5f, "skill.x." + expert),
                                     Scaled(base, norm, 0.5f, "skill.x." + norm)});
  const std::string replaced =
      Write("replaced.cmf", base, Json::array(),
            {Scaled(base, expert, 1.5f, expert), Scaled(base, norm, 0.5f, norm)});
  EXPECT_EQ(Logits(skilled, "x"), Logits(replaced, ""));
  EXPECT_NE(Logits(skilled, "x"), Logits(skilled, ""));
  EXPECT_EQ(Logits(skilled, ""), Logits(File(base), ""));
  EXPECT_EQ(Logits(skilled, "x.model"), Logits(File(base), ""));
  // One skill is nothing but other views of the file.
  EXPECT_EQ(BlendedBytes(Load(skilled, "x")->checkpoint()), 0u);
  // Half of it and half of one that has nothing: a quarter more, in f32.
  const std::string quarter =
      Write("quarter.cmf", base, Json::array(),
            {Scaled(base, expert, 1.25f, expert), Scaled(base, norm, 0.75f, norm)});
  const std::vector<float> blend = Logits(skilled, "x=0.5,x.model=0.5");
  const std::vector<float> same = Logits(quarter, "");
  for (size_t i = 0; i < blend.size(); ++i) EXPECT_NEAR(blend[i], same[i], 1e-5);
}

// Skills of routed experts and of the trunk, streamed: one skill's experts come from their places
// in the file, blended ones stay in memory.
TEST_F(SkillsTest, StreamedSkillsAndBlends) {
  const std::string base = "moe_qwen2_f32";
  const std::string expert = "model.layers.1.mlp.experts.0.down_proj.weight";
  const std::string other = "model.layers.1.mlp.experts.3.gate_proj.weight";
  const std::string query = "model.layers.0.self_attn.q_proj.weight";
  const Json skills = Json::array({{{"id", "x"}}, {{"id", "y"}}});
  const std::string path = Write("streamed.cmf", base, skills,
                                 {Scaled(base, expert, 1.5f, "skill.x." + expert),
                                  Scaled(base, query, 0.5f, "skill.x." + query),
                                  Scaled(base, other, 0.25f, "skill.y." + other)});
  const std::string usage = (folder_ / "streamed.cmf.freq").string();
  const std::shared_ptr<const formats::Checkpoint> file = formats::OpenCheckpoint(path);
  const auto outline = [&](const std::string& chosen) {
    LoadOptions options;
    options.task = "none";
    options.skills = ParseSkillChoice(chosen, *file);
    return ModelOutline(file, options, &threads_);
  };
  const uint64_t all = outline("").stored().count;
  for (const auto& [chosen, held] : {std::pair<const char*, uint64_t>{"", 0},
                                     {"x", 0},
                                     {"y", 0},
                                     {"x=0.5,y=0.5", 2},
                                     {"x", 0},
                                     {"", 0}}) {
    SCOPED_TRACE(chosen);
    const ModelOutline outlined = outline(chosen);
    EXPECT_EQ(outlined.stored().count, all - held);
    EXPECT_EQ(outlined.stored().held_bytes != 0, held != 0);
    const std::vector<float> expected = Logits(path, chosen);
    for (const uint64_t slots : {uint64_t{1}, outlined.stored().least_slots, all - held}) {
      LoadOptions options;
      options.stream.emplace();
      options.stream->arena_bytes = outlined.stored().ArenaBytes(slots);
      options.stream->frequencies = usage;
      const auto model = Load(path, chosen, options);
      EXPECT_EQ(Logits(model.get()), expected) << slots;
      EXPECT_EQ(model->stream_stats()->store.experts, all - held);
    }
    // What one of them counted, every other one knows.
    const std::vector<uint64_t> counts =
        UsageFile(usage, *file, outlined.weights(), outlined.stored()).Read();
    EXPECT_EQ(counts.size(), all - held);
    EXPECT_GT(std::count_if(counts.begin(), counts.end(), [](uint64_t n) { return n > 0; }), 0);
  }
}

// Skills that take turns over one trunk: each reads what the one before has not left.
TEST_F(SkillsTest, ATrunkIsNotReadAnew) {
  const std::string base = "moe_qwen2_f32";
  const std::string query = "model.layers.0.self_attn.q_proj.weight";
  const std::string norm = "model.layers.2.input_layernorm.weight";
  const std::string output = "model.layers.1.self_attn.o_proj.weight";
  const Json skills = Json::array({{{"id", "x"}}, {{"id", "y"}}});
  const std::string path = Write(
      "turns.cmf", base, skills,
      {Scaled(base, query, 0.5f, "skill.x." + query), Scaled(base, norm, 0.5f, "skill.x." + norm),
       Scaled(base, output, 0.25f, "skill.y." + output)});
  const std::shared_ptr<const formats::Checkpoint> file = formats::OpenCheckpoint(path);
  LoadOptions options;
  options.task = "none";
  const ModelOutline outline(file, options, &threads_);
  const auto disk = std::make_shared<FakeDisk>();
  disk->AddFile(path);
  options.stream.emplace();
  options.stream->arena_bytes = outline.stored().ArenaBytes(outline.stored().count);
  options.stream->open_reader = [disk](std::span<const std::string>, std::span<uint8_t>) {
    return disk->MakeReader();
  };
  options.stream->trunk = std::make_shared<TrunkMemory>();
  const auto read_for = [&](const std::string& chosen) {
    const uint64_t before = disk->bytes_read();
    const auto model = Load(path, chosen, options);
    const uint64_t read = disk->bytes_read() - before;
    EXPECT_EQ(Logits(model.get()), Logits(path, chosen)) << chosen;
    return read;
  };
  const uint64_t whole = read_for("");
  EXPECT_GE(whole, outline.trunk_memory() / 2);
  const uint64_t edges = 2 * kDiskAlignment;
  const uint64_t matrix = 64 * 64 * sizeof(float);
  EXPECT_EQ(read_for(""), 0u);
  // What the skill has of its own; then what it had replaced.
  for (const std::string chosen : {"x", ""}) {
    const uint64_t read = read_for(chosen);
    EXPECT_GE(read, matrix) << chosen;
    EXPECT_LE(read, matrix + edges + kDiskAlignment + edges) << chosen;
  }
  EXPECT_GT(read_for("x"), 0u);
  EXPECT_LE(read_for("y"), 2 * matrix + 4 * edges);
  // A blend is in no file: what it replaces is given back, and read again later.
  EXPECT_LT(read_for("x=0.5,y=0.5"), whole / 2);
  EXPECT_LT(read_for(""), whole / 2);
  EXPECT_EQ(read_for(""), 0u);
  // A fault leaves what is there.
  disk->FailReads(0, file->Find("skill.y." + output)->file_offset, -1);
  EXPECT_EQ(Thrown([&] { read_for("y"); }), ErrorCode::kIo);
  disk->ClearFaults();
  EXPECT_LE(read_for("y"), matrix + edges);
  EXPECT_LE(read_for(""), matrix + edges);
}

// A run that holds an expert in memory leaves its count as it was.
TEST_F(SkillsTest, CountsOfHeldExpertsStay) {
  const std::string expert = "model.layers.1.mlp.experts.0.down_proj.weight";
  const Json skills = Json::array({{{"id", "x"}}, {{"id", "y"}}});
  const std::string path = Write("counts.cmf", "moe_qwen2_f32", skills,
                                 {Scaled("moe_qwen2_f32", expert, 1.5f, "skill.x." + expert)});
  const std::shared_ptr<const formats::Checkpoint> file = formats::OpenCheckpoint(path);
  LoadOptions options;
  options.task = "none";
  const ModelOutline plain(file, options, &threads_);
  options.skills = ParseSkillChoice("x=0.5,y=0.5", *file);
  const ModelOutline blend(file, options, &threads_);
  const std::string usage = (folder_ / "counts.cmf.freq").string();
  const size_t all = plain.stored().count;
  const size_t held = plain.stored().layers[0].size();  // the first expert of layer 1
  std::vector<uint64_t> first(all, 1);
  first[held] = 5;
  UsageFile(usage, *file, plain.weights(), plain.stored()).Save(first);
  UsageFile blended(usage, *file, blend.weights(), blend.stored());
  EXPECT_EQ(blended.Read(), std::vector<uint64_t>(all - 1, 1));
  blended.Save(std::vector<uint64_t>(all - 1, 2));
  std::vector<uint64_t> expected(all, 3);
  expected[held] = 5;
  EXPECT_EQ(UsageFile(usage, *file, plain.weights(), plain.stored()).Read(), expected);
}

TEST_F(SkillsTest, WhatReplacesNothingOrDoesNotFitIsRefused) {
  const std::string base = "skill_base";
  const std::string norm = "model.norm.weight";
  const Json skills = Json::array({{{"id", "x"}}, {{"id", "y"}}});
  NewTensor wrong = Scaled(base, norm, 1.0f, "skill.x." + norm);
  wrong.shape = {8, 8};
  const std::string shape = Write("shape.cmf", base, skills, {wrong});
  std::string message;
  EXPECT_EQ(Thrown([&] { Load(shape, "x"); }, &message), ErrorCode::kParse);
  EXPECT_NE(message.find("skill.x.model.norm.weight has shape [8, 8]"), std::string::npos)
      << message;
  EXPECT_NO_THROW(Load(shape, "y"));
  EXPECT_NO_THROW(Load(shape, ""));
  const std::string missing =
      Write("missing.cmf", base, skills, {Scaled(base, norm, 1.0f, "skill.x.model.nose.weight")});
  EXPECT_EQ(Thrown([&] { Load(missing, "x"); }), ErrorCode::kMissingTensor);
  EXPECT_EQ(Thrown([&] { Load(missing, "x=0.5,y=0.5"); }), ErrorCode::kMissingTensor);
  // verify knows without choosing.
  const auto problem = [&](const std::string& path) {
    const auto report = formats::Verify(path, {}, &threads_, [](uint64_t, uint64_t) {});
    EXPECT_EQ(report.problems.size(), 1u);
    return report.ok() ? ErrorCode::kInternal : report.problems.front().code;
  };
  EXPECT_EQ(problem(shape), ErrorCode::kParse);
  EXPECT_EQ(problem(missing), ErrorCode::kMissingTensor);
  EXPECT_EQ(Thrown([&] { Load(File("gfx.skill"), ""); }, &message), ErrorCode::kParse);
  EXPECT_NE(message.find("moewe skill apply"), std::string::npos) << message;
}

TEST_F(SkillsTest, ADamagedTensorIsFoundWhenItsSkillRuns) {
  const std::string path = (folder_ / "damaged.cmf").string();
  fs::copy_file(File("skills_2"), path);
  const std::string name = "skill.code.model.layers.2.mlp.up_proj.weight";
  const uint64_t offset = CmfFile::Open(path)->Find(name)->file_offset;
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(offset + 100));
  file.put('\x55');
  file.close();
  std::string message;
  for (const char* skills : {"code", "code=0.5,prose=0.5"}) {
    EXPECT_EQ(Thrown([&] { Load(path, skills); }, &message), ErrorCode::kHashMismatch) << skills;
    EXPECT_NE(message.find(name), std::string::npos) << message;
    LoadOptions again;
    again.backbone_verified = true;
    EXPECT_EQ(Thrown([&] { Load(path, skills, again); }), ErrorCode::kHashMismatch) << skills;
    LoadOptions none;
    none.verify = Verify::kNone;
    EXPECT_NO_THROW(Load(path, skills, none));
  }
  EXPECT_NO_THROW(Load(path, "prose"));
  EXPECT_NO_THROW(Load(path, ""));
}

TEST_F(SkillsTest, BlendsCountAsMemory) {
  const std::shared_ptr<const formats::Checkpoint> file = formats::OpenCheckpoint(File("skills_2"));
  const auto blend = Load(File("skills_2"), "code=0.5,prose=0.5");
  // In f32: three FFN matrices of 96 x 64 in each of three layers, attention of layers 0 and 1.
  const uint64_t blended = 4u * (3 * 3 * 96 * 64 + 2 * (2 * 64 * 64 + 2 * 32 * 64));
  EXPECT_EQ(BlendedBytes(blend->checkpoint()), blended);
  const MemoryRequest request{.budget = uint64_t{1} << 30};
  const auto outline = [&](const std::string& skills) {
    LoadOptions options;
    options.task = "none";
    options.skills = ParseSkillChoice(skills, *file);
    return ModelOutline(file, options, &threads_);
  };
  const ModelOutline blend_outline = outline("code=0.5,prose=0.5");
  EXPECT_EQ(blend_outline.weight_bytes_total(), blend->weight_bytes_total());
  EXPECT_EQ(blend_outline.weight_bytes_per_token(), blend->weight_bytes_per_token());
  const MemoryPlan plan = PlanMemory(blend_outline, request);
  EXPECT_EQ(plan.blended, blended);
  EXPECT_EQ(plan.total() - PlanMemory(outline(""), request).total(),
            ExtraBytes(*file, {{"code", 0.5}, {"prose", 0.5}}));
  EXPECT_EQ(MostExtraBytes(*file, {"code", "prose"}, true),
            ExtraBytes(*file, {{"code", 0.5}, {"prose", 0.5}}));
  // q4_tiled instead of q8_row is less; q8_row instead of q8_row the same.
  EXPECT_EQ(MostExtraBytes(*file, {"code", "prose"}, false), 0u);
  LoadOptions tight;
  tight.blend_limit = blended - 1;
  EXPECT_EQ(Thrown([&] { Load(File("skills_2"), "code=0.5,prose=0.5", tight); }),
            ErrorCode::kOutOfBudget);
  EXPECT_NO_THROW(Load(File("skills_2"), "code", tight));
}

TEST_F(SkillsTest, ASkillBringsItsMask) {
  const std::shared_ptr<const formats::Checkpoint> file =
      formats::OpenCheckpoint(File("skill_sparse"));
  EXPECT_EQ(LinkedTask(*file, {{"lean", 1.0}}), "lean");
  EXPECT_EQ(LinkedTask(*file, {}), "");
  LoadOptions options;
  options.activations = kernels::Activations::kF32;
  options.skills = {{"lean", 1.0}};
  const auto linked = Model::Load(file, options, &threads_);
  options.task = "lean";
  const auto asked = Model::Load(file, options, &threads_);
  options.task = "none";
  const auto without = Model::Load(file, options, &threads_);
  EXPECT_EQ(Logits(linked.get()), Logits(asked.get()));
  // A mask that is not there: an error for one that the skill needs, unless nobody asks for it.
  const std::string base = "skill_base";
  const auto with = [&](const char* key) {
    return formats::OpenCheckpoint(
        Write(key, base, Json::array({{{"id", "x"}, {key, "gone"}}}), {}));
  };
  EXPECT_EQ(LinkedTask(*with("task"), {{"x", 1.0}}), "");
  EXPECT_EQ(Thrown([&] { LinkedTask(*with("input_mask_task"), {{"x", 1.0}}); }), ErrorCode::kParse);
  EXPECT_NO_THROW(Load((folder_ / "input_mask_task").string(), "x"));
  EXPECT_EQ(LinkedTask(*formats::OpenCheckpoint(File("applied")), {{"gfx-html", 1.0}}), "general");
  EXPECT_NE(Logits(linked.get()), Logits(without.get()));
}

}  // namespace
}  // namespace moewe::model
