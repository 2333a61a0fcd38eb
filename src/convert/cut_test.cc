// Files with experts or neurons cut out: against files of the existing runtime, against the same
// restriction at run time, and what becomes of masks and skills.
#include "convert/cut.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>

#include "convert/convert.h"
#include "convert/expert_stats.h"
#include "convert/mask_edit.h"
#include "formats/cmf/expert_numbering.h"
#include "formats/cmf/writer.h"
#include "formats/verify.h"
#include "golden.h"
#include "model/model.h"
#include "moewe/error.h"
#include "thrown.h"

namespace moewe::convert {
namespace {

namespace fs = std::filesystem;
using formats::CmfFile;
using formats::TensorView;

std::string File(const std::string& name) { return golden::Path("cmf/files/" + name).string(); }

// A bool or f32 array as NumPy writes it.
std::string Npy(const char* type, const std::vector<size_t>& shape, const std::string& data) {
  std::string header = std::string("{'descr': '") + type + "', 'fortran_order': False, 'shape': (";
  for (const size_t size : shape) header += std::to_string(size) + ", ";
  header += "), }";
  header.resize((header.size() + 11 + 63) / 64 * 64 - 11, ' ');
  header += '\n';
  const auto length = static_cast<uint16_t>(header.size());
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(length & 0xFF) +
         static_cast<char>(length >> 8) + header + data;
}

class CutTest : public testing::Test {
 protected:
  CutTest() : folder_(fs::temp_directory_path() / ("moewe_cut." + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~CutTest() override { fs::remove_all(folder_); }

  std::string At(const std::string& name) const { return (folder_ / name).string(); }
  void Put(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(At(name)).parent_path());
    std::ofstream(At(name), std::ios::binary) << text;
  }

  std::unique_ptr<CmfFile> Convert(const std::string& source, const std::string& dst,
                                   const ConvertOptions& options) {
    ConvertToCmf(*formats::OpenCheckpoint(source), At(dst), options, pool_);
    EXPECT_TRUE(formats::Verify(At(dst), {}, &pool_, [](uint64_t, uint64_t) {}).ok());
    return CmfFile::Open(At(dst));
  }

  std::unique_ptr<CmfFile> CutExperts(const std::string& source, const CountsFile& counts,
                                      double cover, const std::string& dst) {
    ConvertOptions options;
    options.note = [this](const std::string& line) { notes_ += line + "\n"; };
    options.expert_cut = PlanExpertCut(*CmfFile::Open(source), counts, cover, "counts");
    return Convert(source, dst, options);
  }

  // `source` with another header and more tensors.
  void Rewrite(const std::string& source, const std::string& dst,
               const std::function<void(Json*)>& edit,
               const std::vector<std::pair<std::string, TensorView>>& more = {}) {
    const auto file = CmfFile::Open(source);
    formats::CmfPlan plan;
    plan.header = file->config();
    edit(&plan.header);
    std::vector<Bytes> bytes;
    for (const TensorView& tensor : file->tensors()) {
      plan.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes.size()});
      bytes.push_back(tensor.bytes);
    }
    for (const auto& [name, tensor] : more) {
      plan.tensors.push_back({name, tensor.dtype, tensor.shape, tensor.bytes.size()});
      bytes.push_back(tensor.bytes);
    }
    const auto writer = formats::CmfWriter::Create(std::move(plan), At(dst));
    for (size_t i = 0; i < bytes.size(); ++i) writer->Write(i, bytes[i]);
    writer->Finish();
  }

  std::vector<float> Logits(const std::string& file, const std::string& task = "none",
                            kernels::Activations activations = kernels::Activations::kF32) {
    model::LoadOptions options;
    options.activations = activations;
    options.task = task;
    const auto model = model::Model::Load(formats::OpenCheckpoint(file), options, &pool_);
    model::KvPool kv(model->config(), model::KvType::kF32, 4);
    model::Sequence sequence(&kv);
    const std::vector<model::TokenId> ids{110, 47, 73, 5, 201, 33, 9};
    model::SequenceChunk chunk{&sequence, ids, model::SequenceChunk::Logits::kAll};
    std::vector<float> logits;
    model->Forward({&chunk, 1}, &logits);
    return logits;
  }

  fs::path folder_;
  std::string notes_;
  ThreadPool pool_{2};
};

void ExpectSameTensors(const CmfFile& file, const CmfFile& expected) {
  ASSERT_EQ(file.tensors().size(), expected.tensors().size());
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    const TensorView& a = file.tensors()[i];
    const TensorView& b = expected.tensors()[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.dtype, b.dtype) << a.name;
    EXPECT_EQ(a.shape, b.shape) << a.name;
    EXPECT_TRUE(std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end()))
        << a.name;
  }
}

void ExpectClose(const std::vector<float>& a, const std::vector<float>& b, float most) {
  ASSERT_EQ(a.size(), b.size());
  float largest = 0.0f;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::fabs(a[i] - b[i]));
  EXPECT_LE(largest, most);
}

CountsFile CountsOf(const std::string& name) {
  const std::string file = File(name + ".moe_stats.json");
  return ReadExpertCounts({&file, 1});
}

// --- experts ---

TEST_F(CutTest, ExpertsGoAsInExistingFilesOnceAndAgain) {
  for (const std::string name : {"moe_qwen2_q8", "moe_qwen3_q4tp"}) {
    const auto expect = [&](const CmfFile& file, const std::string& golden_name) {
      const auto golden = CmfFile::Open(File(golden_name + ".cmf"));
      ExpectSameTensors(file, *golden);
      Json ours = file.config();
      Json theirs = golden->config();
      EXPECT_EQ(ours["arch"], theirs["arch"]);
      for (Json* header : {&ours, &theirs}) (*header)["provenance"]["moe_defrag"].erase("tool");
      EXPECT_EQ(nlohmann::json(ours["provenance"]), nlohmann::json(theirs["provenance"]));
    };
    const auto once = CutExperts(File(name + ".cmf"), CountsOf(name), 0.85, "once.cmf");
    expect(*once, name + "_moedefrag");
    const auto again = CutExperts(At("once.cmf"), EmbeddedCounts(*once), 0.5, "again.cmf");
    expect(*again, name + "_moedefrag_again");
  }
}

// What a mask does at run time and a cut does for good is the same, bit for bit.
TEST_F(CutTest, ACutFileComputesWhatTheRestrictedOneDoes) {
  const std::string source = File("moe_qwen3_q4tp.cmf");
  const std::vector<float> bias{0.3f, -0.2f, 0.0f, 0.1f, -0.4f, 0.25f, 0.05f, -0.1f};
  TensorView bias_view;
  bias_view.dtype = DType::kF32;
  bias_view.shape = {bias.size()};
  bias_view.bytes = {reinterpret_cast<const uint8_t*>(bias.data()), bias.size() * sizeof(float)};
  for (const bool sigmoid : {false, true}) {
    for (const bool norm : {false, true}) {
      for (const bool biased : {false, true}) {
        std::vector<std::pair<std::string, TensorView>> more;
        if (biased) more.emplace_back("model.layers.1.mlp.expert_bias", bias_view);
        Rewrite(
            source, "m.cmf",
            [&](Json* header) {
              (*header)["arch"]["moe"]["router_sigmoid"] = sigmoid;
              (*header)["arch"]["moe"]["norm_topk_prob"] = norm;
            },
            more);
        const CountsFile counts = CountsOf("moe_qwen3_q4tp");
        for (const double cover : {0.85, 0.1}) {  // 0.1: one expert a layer, fewer than top_k
          const auto cut = CutExperts(At("m.cmf"), counts, cover, "cut.cmf");
          const auto whole = CmfFile::Open(At("m.cmf"));
          AddMask(*whole, ExpertMask(*whole, counts.counts, cover, "task", "counts"), false,
                  At("masked.cmf"));
          for (const auto activations : {kernels::Activations::kF32, kernels::Activations::kInt8}) {
            const std::vector<float> restricted = Logits(At("masked.cmf"), "task", activations);
            EXPECT_EQ(Logits(At("cut.cmf"), "none", activations), restricted)
                << sigmoid << norm << biased << " " << cover;
            EXPECT_NE(Logits(At("m.cmf"), "none", activations), restricted);
          }
          if (!biased) continue;
          const TensorView* kept = cut->Find("model.layers.1.mlp.expert_bias");
          ASSERT_NE(kept, nullptr);
          EXPECT_EQ(kept->shape[0], cut->Find("model.layers.1.mlp.gate.weight")->shape[0]);
        }
      }
    }
  }
}

// Biases of a router and of experts go with what they belong to.
TEST_F(CutTest, BiasesGoWithTheirExperts) {
  ConvertOptions options;
  options.quant = DType::kQ8Row;
  const auto whole = Convert(golden::Path("hf/gpt_oss").string(), "whole.cmf", options);
  CountsFile counts;
  for (uint32_t layer = 0; layer < 4; ++layer) counts.counts[layer] = {0, 9, 1, 7, 0, 5};
  const auto cut = CutExperts(At("whole.cmf"), counts, 0.9, "cut.cmf");
  const std::string mlp = "model.layers.2.mlp.";
  EXPECT_EQ(cut->Find(mlp + "gate.bias")->shape, std::vector<uint64_t>{3});
  EXPECT_EQ(cut->Find(mlp + "experts.3.up_proj.bias"), nullptr);
  const TensorView* kept = cut->Find(mlp + "experts.2.up_proj.bias");
  const TensorView* original = whole->Find(mlp + "experts.5.up_proj.bias");
  ASSERT_TRUE(kept != nullptr && original != nullptr);
  EXPECT_TRUE(std::ranges::equal(kept->bytes, original->bytes));
  AddMask(*whole, ExpertMask(*whole, counts.counts, 0.9, "task", "counts"), false,
          At("masked.cmf"));
  const std::vector<float> restricted = Logits(At("masked.cmf"), "task");
  EXPECT_EQ(Logits(At("cut.cmf")), restricted);
  EXPECT_NE(Logits(At("whole.cmf")), restricted);
}

TEST_F(CutTest, RoutersOfEveryDtypeKeepTheirNumbers) {
  for (const DType dtype :
       {DType::kF32, DType::kBf16, DType::kQ8Row, DType::kQ82f, DType::kQ4tp, DType::kQ4Block,
        DType::kVbit, DType::kVbitRo, DType::kQ1s, DType::kQ1t}) {
    ConvertOptions options;
    options.tensor_rules = {{"*.mlp.gate", dtype}};
    const auto source = Convert(File("moe_qwen3_q4tp.cmf"), "m.cmf", options);
    const CountsFile counts = CountsOf("moe_qwen3_q4tp");
    const ExpertCut plan = PlanExpertCut(*source, counts, 0.85, "counts");
    const auto cut = CutExperts(At("m.cmf"), counts, 0.85, "cut.cmf");
    const std::string name = "model.layers.2.mlp.gate.weight";
    const auto decoded = [&](const CmfFile& file) {
      const TensorView& tensor = *file.Find(name);
      return quant::Decode(tensor.dtype, tensor.bytes, tensor.matrix(), {});
    };
    const std::vector<float> before = decoded(*source);
    const std::vector<float> after = decoded(*cut);
    const size_t cols = source->Find(name)->shape[1];
    std::vector<float> expected;
    for (const uint32_t row : *plan.kept.at(2)) {
      expected.insert(expected.end(), before.begin() + static_cast<ptrdiff_t>(row * cols),
                      before.begin() + static_cast<ptrdiff_t>((row + 1) * cols));
    }
    EXPECT_EQ(after, expected) << DTypeName(dtype);
  }
}

TEST_F(CutTest, MasksNameTheKeptExperts) {
  const std::string source = File("moe_qwen2_q8_expertmask.cmf");
  const CountsFile counts = CountsOf("moe_qwen2_q8");
  const auto whole = CmfFile::Open(source);
  const auto cut = CutExperts(source, counts, 0.85, "cut.cmf");
  EXPECT_NE(notes_.find("masks now name the kept experts"), std::string::npos) << notes_;
  const Kept kept = PlanExpertCut(*whole, counts, 0.85, "counts").kept.at(1);
  const auto& masks = whole->contents().masks.masks;
  ASSERT_EQ(cut->contents().masks.masks.size(), masks.size());
  for (size_t m = 0; m < masks.size(); ++m) {
    // On the whole file: the experts that the mask and the cut both leave.
    std::vector<uint32_t> both;
    for (const uint32_t expert : *kept) {
      if (formats::cmf::MaskBit(masks[m].expert_rows[1], expert)) both.push_back(expert);
    }
    MaskDescription description(whole->contents().header);
    description.name = "both";
    DescribeByJson({{"experts", {{"1", both}}}}, whole->contents().header, "d", &description);
    AddMask(*whole, description, false, At("both.cmf"));
    EXPECT_EQ(Logits(At("cut.cmf"), masks[m].name), Logits(At("both.cmf"), "both"));
    // Again, from the numbers that are there now.
    const auto again = CutExperts(At("cut.cmf"), EmbeddedCounts(*cut), 0.6, "again.cmf");
    const auto& left = again->contents().masks.masks;
    for (const auto& mask : left) {
      EXPECT_TRUE(formats::cmf::NumbersPresentExperts(mask.meta));
      Logits(At("again.cmf"), mask.name);
    }
  }
}

TEST_F(CutTest, AMaskThatLosesAllItsExpertsGoes) {
  const auto whole = CmfFile::Open(File("moe_qwen2_q8.cmf"));
  MaskDescription description(whole->contents().header);
  description.name = "rare";
  DescribeByJson({{"experts", {{"1", {5}}}}}, whole->contents().header, "d", &description);
  AddMask(*whole, description, true, At("rare.cmf"));
  CountsFile counts;
  counts.counts[1] = {9, 9, 0, 0, 0, 0, 0, 0};
  const auto cut = CutExperts(At("rare.cmf"), counts, 0.9, "cut.cmf");
  EXPECT_TRUE(cut->contents().masks.masks.empty());
  EXPECT_NE(notes_.find("left out"), std::string::npos) << notes_;
  EXPECT_EQ(cut->contents().envelope.masks.length, 0u);
}

TEST_F(CutTest, NewMasksOfACutFileNumberWhatIsThere) {
  const std::string source = File("moe_qwen3_q4tp_moedefrag.cmf");
  const auto cut = CmfFile::Open(source);
  const CountsFile counts = EmbeddedCounts(*cut);
  AddMask(*cut, ExpertMask(*cut, counts.counts, 0.5, "half", "counts"), false, At("masked.cmf"));
  CutExperts(source, counts, 0.5, "again.cmf");
  EXPECT_EQ(Logits(At("masked.cmf"), "half"), Logits(At("again.cmf")));
}

TEST_F(CutTest, SkillsGoAlong) {
  const std::string source = File("moe_qwen2_q8.cmf");
  const auto whole = CmfFile::Open(source);
  std::vector<std::pair<std::string, TensorView>> more;
  for (const char* name : {"mlp.experts.1.up_proj.weight", "mlp.experts.2.up_proj.weight",
                           "mlp.gate.weight", "self_attn.q_proj.weight"}) {
    const std::string of = std::string("model.layers.1.") + name;
    more.emplace_back("skill.x." + of, *whole->Find(of));
  }
  Rewrite(
      source, "skilled.cmf",
      [](Json* header) { (*header)["skills"] = Json::array({{{"id", "x"}, {"layers", {1}}}}); },
      more);
  CountsFile counts;
  counts.counts[1] = {0, 9, 0, 9, 9, 0, 0, 0};
  const auto cut = CutExperts(At("skilled.cmf"), counts, 1.0, "cut.cmf");
  const auto same = [&](const std::string& skill, const std::string& backbone) {
    const TensorView* a = cut->Find("skill.x.model.layers.1." + skill);
    const TensorView* b = cut->Find("model.layers.1." + backbone);
    ASSERT_NE(a, nullptr) << skill;
    EXPECT_EQ(a->shape, b->shape);
    EXPECT_EQ(a->hash, b->hash) << skill;
  };
  same("mlp.experts.0.up_proj.weight", "mlp.experts.0.up_proj.weight");  // was 1
  same("mlp.gate.weight", "mlp.gate.weight");
  same("self_attn.q_proj.weight", "self_attn.q_proj.weight");
  EXPECT_EQ(cut->Find("skill.x.model.layers.1.mlp.experts.1.up_proj.weight"), nullptr);  // was 2
}

TEST_F(CutTest, CountsThatSayNothingOrOfAnotherModel) {
  const auto whole = CmfFile::Open(File("moe_qwen2_q8.cmf"));
  const auto plan = [&](const ExpertCounts& counts, double cover) {
    return Thrown([&] { PlanExpertCut(*whole, {counts, 0}, cover, "f"); });
  };
  const std::vector<uint64_t> some{1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(plan({{1, some}}, 0.5), std::nullopt);
  EXPECT_EQ(plan({}, 0.5), ErrorCode::kParse);
  EXPECT_EQ(plan({{1, std::vector<uint64_t>(8, 0)}}, 0.5), ErrorCode::kParse);
  EXPECT_EQ(plan({{0, some}}, 0.5), ErrorCode::kParse);  // a dense layer
  EXPECT_EQ(plan({{1, {1, 2}}}, 0.5), ErrorCode::kParse);
  EXPECT_EQ(plan({{1, some}, {7, some}}, 0.5), ErrorCode::kParse);
  for (const double cover : {0.0, -1.0, 1.1, std::nan("")}) {
    EXPECT_EQ(plan({{1, some}}, cover), ErrorCode::kUsage) << cover;
  }
  EXPECT_EQ(plan({{1, some}}, 1.0), ErrorCode::kUsage);  // nothing would go
  EXPECT_EQ(Thrown([&] { EmbeddedCounts(*whole); }), ErrorCode::kUsage);
  EXPECT_EQ(Thrown([&] { ExpertMask(*whole, {}, 0.5, "n", "f"); }), ErrorCode::kParse);
  const auto dense = CmfFile::Open(File("dense_qwen3_q8.cmf"));
  EXPECT_EQ(Thrown([&] { PlanExpertCut(*dense, {{{0, some}}, 0}, 0.5, "f"); }), ErrorCode::kUsage);
}

TEST_F(CutTest, WhatIsNoModelIsNotCut) {
  // A router with more rows than the layer has experts.
  const auto whole = CmfFile::Open(File("moe_qwen2_q8.cmf"));
  formats::CmfPlan plan;
  plan.header = whole->config();
  std::vector<Bytes> bytes;
  for (const TensorView& tensor : whole->tensors()) {
    if (tensor.name.find("mlp.experts.7.") != std::string::npos) continue;
    plan.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes.size()});
    bytes.push_back(tensor.bytes);
  }
  const auto writer = formats::CmfWriter::Create(std::move(plan), At("gap.cmf"));
  for (size_t i = 0; i < bytes.size(); ++i) writer->Write(i, bytes[i]);
  writer->Finish();
  const auto gap = CmfFile::Open(At("gap.cmf"));
  EXPECT_EQ(Thrown([&] { PlanExpertCut(*gap, CountsOf("moe_qwen2_q8"), 0.5, "f"); }),
            ErrorCode::kParse);
  // A bias of fewer experts.
  const std::vector<float> bias(3, 0.0f);
  TensorView view;
  view.shape = {bias.size()};
  view.bytes = {reinterpret_cast<const uint8_t*>(bias.data()), bias.size() * sizeof(float)};
  Rewrite(File("moe_qwen2_q8.cmf"), "bias.cmf", [](Json*) {},
          {{"model.layers.1.mlp.expert_bias", view}});
  EXPECT_EQ(Thrown([&] { CutExperts(At("bias.cmf"), CountsOf("moe_qwen2_q8"), 0.85, "x.cmf"); }),
            ErrorCode::kParse);
  EXPECT_FALSE(fs::exists(At("x.cmf")));
}

TEST_F(CutTest, AnInterruptedCutIsContinued) {
  const std::string source = File("moe_qwen3_q4tp.cmf");
  ConvertOptions options;
  options.expert_cut = PlanExpertCut(*CmfFile::Open(source), CountsOf("moe_qwen3_q4tp"), 0.85, "f");
  options.progress = [](const ConvertProgress& state) {
    if (state.tensors == 20) throw Error(ErrorCode::kInterrupted, "stop");
  };
  EXPECT_EQ(Thrown([&] { Convert(source, "out.cmf", options); }), ErrorCode::kInterrupted);
  EXPECT_FALSE(fs::exists(At("out.cmf")));
  options.progress = nullptr;
  options.resume = true;
  std::string notes;
  options.note = [&](const std::string& line) { notes += line; };
  ExpectSameTensors(*Convert(source, "out.cmf", options),
                    *CmfFile::Open(File("moe_qwen3_q4tp_moedefrag.cmf")));
  EXPECT_NE(notes.find("resuming"), std::string::npos) << notes;
}

// --- neurons ---

// The neurons that a golden cut file kept: rows of its gate projection, found in the whole one.
std::vector<std::vector<uint32_t>> KeptNeurons(const CmfFile& cut, const CmfFile& whole) {
  std::vector<std::vector<uint32_t>> kept;
  for (uint32_t layer = 0; layer < cut.contents().header.num_layers; ++layer) {
    const std::string name = "model.layers." + std::to_string(layer) + ".mlp.gate_proj.weight";
    const TensorView& a = *cut.Find(name);
    const TensorView& b = *whole.Find(name);
    const size_t row = a.bytes.size() / a.shape[0];
    std::vector<uint32_t>& of_layer = kept.emplace_back();
    for (uint32_t i = 0; i < b.shape[0] && of_layer.size() < a.shape[0]; ++i) {
      const Bytes mine = a.bytes.subspan(of_layer.size() * row, row);
      const Bytes theirs = b.bytes.subspan(i * row, row);
      if (std::equal(mine.begin(), mine.end(), theirs.begin())) of_layer.push_back(i);
    }
    EXPECT_EQ(of_layer.size(), a.shape[0]);
  }
  return kept;
}

std::string KeepArray(const std::vector<std::vector<uint32_t>>& kept, size_t width) {
  std::string bits(kept.size() * width, '\0');
  for (size_t layer = 0; layer < kept.size(); ++layer) {
    for (const uint32_t i : kept[layer]) bits[layer * width + i] = 1;
  }
  return Npy("|b1", {kept.size(), width}, bits);
}

// The same names, dtypes and shapes, and nearly the same numbers: the golden file was made from
// weights that our source has rounded to f16.
void ExpectAlike(const CmfFile& file, const CmfFile& expected) {
  ASSERT_EQ(file.tensors().size(), expected.tensors().size());
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    const TensorView& a = file.tensors()[i];
    const TensorView& b = expected.tensors()[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.dtype, b.dtype) << a.name;
    ASSERT_EQ(a.shape, b.shape) << a.name;
    const std::vector<float> x = quant::Decode(a.dtype, a.bytes, a.matrix(), {});
    const std::vector<float> y = quant::Decode(b.dtype, b.bytes, b.matrix(), {});
    double difference = 0.0;
    double power = 0.0;
    for (size_t k = 0; k < x.size(); ++k) {
      difference += std::pow(static_cast<double>(x[k]) - static_cast<double>(y[k]), 2);
      power += std::pow(static_cast<double>(y[k]), 2);
    }
    EXPECT_LT(difference, 0.0005 * power) << a.name;
  }
}

TEST_F(CutTest, NeuronsGoAsInExistingFiles) {
  const auto q4t = CmfFile::Open(File("defrag_q4t.cmf"));
  const auto kept = KeptNeurons(*q4t, *CmfFile::Open(File("dense_qwen3_q4t.cmf")));
  Put("dir/ffn_keep.npy", KeepArray(kept, 96));
  for (const auto& [name, dtype] :
       {std::pair("defrag_q4t", DType::kQ4Tiled), std::pair("defrag_q8_2f", DType::kQ82f)}) {
    ConvertOptions options;
    options.quant = dtype;
    options.defrag_folder = At("dir");
    options.note = [this](const std::string& line) { notes_ += line + "\n"; };
    const auto file = Convert(File("dense_qwen3_f16.cmf"), "out.cmf", options);
    const auto golden = CmfFile::Open(File(std::string(name) + ".cmf"));
    ExpectAlike(*file, *golden);
    EXPECT_EQ(nlohmann::json(file->config()["arch"]), nlohmann::json(golden->config()["arch"]));
    Json block = file->config()["provenance"]["defrag"];
    EXPECT_EQ(block["source_skill"], At("dir"));
    block["source_skill"] = "defrag_dir";
    EXPECT_EQ(nlohmann::json(block), nlohmann::json(golden->config()["provenance"]["defrag"]));
  }
  EXPECT_NE(notes_.find("q8_2f: model.layers.1.mlp.down_proj.weight and 1 more"), std::string::npos)
      << notes_;
}

TEST_F(CutTest, ATaskBecomesAFile) {
  for (const std::string source : {"masks_llama_f32", "masks_llama_q8row"}) {
    ConvertOptions options;
    options.defrag_task = "ffn_only";
    const auto cut = Convert(File(source + ".cmf"), "cut.cmf", options);
    EXPECT_TRUE(cut->contents().masks.masks.empty());
    EXPECT_EQ(cut->contents().envelope.index.length, 0u);
    EXPECT_EQ(cut->config()["provenance"]["defrag"]["source_skill"], "task ffn_only");
    ExpectClose(Logits(At("cut.cmf")), Logits(File(source + ".cmf"), "ffn_only"), 1e-5f);
  }
  const auto cut_task = [&](const std::string& file, const std::string& task) {
    ConvertOptions options;
    options.defrag_task = task;
    return Thrown([&] { Convert(File(file), "no.cmf", options); });
  };
  EXPECT_EQ(cut_task("masks_llama_f32.cmf", "heads"), ErrorCode::kUnsupported);
  EXPECT_EQ(cut_task("masks_llama_f32.cmf", "gated"), ErrorCode::kUnsupported);
  EXPECT_EQ(cut_task("loop_masks.cmf", "visits"), ErrorCode::kUnsupported);
  EXPECT_EQ(cut_task("masks_llama_f32.cmf", "nobody"), ErrorCode::kUnknownName);
  EXPECT_FALSE(fs::exists(At("no.cmf")));
  // Of experts: the same as without the mask, for good.
  ConvertOptions options;
  options.defrag_task = "narrow";
  Convert(File("moe_qwen2_q8_expertmask.cmf"), "narrow.cmf", options);
  EXPECT_EQ(Logits(At("narrow.cmf")), Logits(File("moe_qwen2_q8_expertmask.cmf"), "narrow"));
}

std::string Floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

TEST_F(CutTest, BakedWeightsTellWhatIsDead) {
  const std::string source = File("dense_qwen3_f16.cmf");
  const auto whole = CmfFile::Open(source);
  const std::string name = "model.layers.1.mlp.down_proj.weight";
  const TensorView& down = *whole->Find(name);
  std::vector<float> baked = quant::Decode(down.dtype, down.bytes, down.matrix(), {});
  for (size_t i = 0; i < baked.size(); ++i) {
    if (i % 96 % 3 == 1) baked[i] = 0.0f;
  }
  Put("dir/tensors/" + name + ".npy", Npy("<f4", {64, 96}, Floats(baked)));
  // A layer of which nothing is left computes nothing.
  Put("dir/tensors/model.layers.2.mlp.down_proj.weight.npy",
      Npy("<f4", {64, 96}, Floats(std::vector<float>(baked.size(), 0.0f))));
  ConvertOptions options;
  options.quant = DType::kF32;
  options.defrag_folder = At("dir");
  const auto cut = Convert(source, "cut.cmf", options);
  EXPECT_EQ(cut->Find(name)->shape, (std::vector<uint64_t>{64, 64}));
  EXPECT_EQ(cut->Find("model.layers.2.mlp.up_proj.weight")->shape[0], 1u);
  EXPECT_EQ(cut->config()["provenance"]["defrag"]["kept_per_layer"], Json({96, 64, 1}));
  EXPECT_EQ(cut->config()["arch"]["intermediate_size"], 96);
  // The same neurons masked.
  MaskDescription mask(whole->contents().header);
  mask.name = "dead";
  std::vector<uint32_t> dead;
  for (uint32_t i = 1; i < 96; i += 3) dead.push_back(i);
  DescribeByJson({{"ffn", {{"1", {{"dead", dead}}}, {"2", "none"}}}}, whole->contents().header, "d",
                 &mask);
  AddMask(*whole, mask, false, At("masked.cmf"));
  ExpectClose(Logits(At("cut.cmf")), Logits(At("masked.cmf"), "dead"), 1e-5f);
}

TEST_F(CutTest, FoldersThatDoNotFit) {
  const auto thrown = [&](const std::string& source = "dense_qwen3_f16") {
    ConvertOptions options;
    options.defrag_folder = At("dir");
    return Thrown([&] { Convert(File(source + ".cmf"), "no.cmf", options); });
  };
  EXPECT_EQ(thrown(), ErrorCode::kNotFound);
  Put("dir/ffn_keep.npy", Npy("|b1", {3, 95}, std::string(285, 1)));
  EXPECT_EQ(thrown(), ErrorCode::kParse);
  Put("dir/ffn_keep.npy", Npy("|b1", {4, 96}, std::string(384, 1)));
  EXPECT_EQ(thrown(), ErrorCode::kParse);
  Put("dir/ffn_keep.npy", Npy("|b1", {3, 96}, std::string(287, 1)));
  EXPECT_EQ(thrown(), ErrorCode::kBounds);
  Put("dir/ffn_keep.npy", Npy("<f4", {3, 96}, std::string(288 * 4, 1)));
  EXPECT_EQ(thrown(), ErrorCode::kUnsupported);
  Put("dir/ffn_keep.npy", Npy("|b1", {3, 96}, std::string(288, 1)));
  EXPECT_EQ(thrown(), std::nullopt);
  EXPECT_EQ(thrown("moe_qwen3_q4tp"), ErrorCode::kUsage);  // no dense FFN
  EXPECT_EQ(thrown("gfx.skill"), ErrorCode::kUsage);
  Put("dir/tensors/model.layers.7.mlp.down_proj.weight.npy", Npy("<f4", {1}, Floats({1.0f})));
  EXPECT_EQ(thrown(), ErrorCode::kUnknownName);
  fs::remove_all(At("dir/tensors"));
  Put("dir/tensors/model.layers.1.mlp.down_proj.weight.npy", Npy("<f4", {1}, Floats({1.0f})));
  EXPECT_EQ(thrown(), ErrorCode::kParse);
  Put("dir/tensors/model.layers.1.mlp.down_proj.weight.npy",
      Npy("<f8", {64, 96}, std::string(64 * 96 * 8, '\0')));
  EXPECT_EQ(thrown(), ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace moewe::convert
