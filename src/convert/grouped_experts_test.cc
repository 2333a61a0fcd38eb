// Experts that are chosen by groups are counted by their numbers: a mask over some of them, or a
// file without some of them, would be another model, and is refused at every door.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include "convert/convert.h"
#include "convert/mask_edit.h"
#include "formats/cmf/cmf_file.h"
#include "formats/cmf/writer.h"
#include "golden.h"
#include "model/model.h"
#include "model/outline.h"
#include "moewe/error.h"

namespace moewe::convert {
namespace {

namespace fs = std::filesystem;
using formats::CmfFile;
using formats::TensorView;

class GroupedExperts : public testing::TestWithParam<std::string> {
 protected:
  GroupedExperts()
      : folder_(fs::temp_directory_path() / ("moewe_grouped." + std::to_string(getpid()))) {
    fs::create_directories(folder_);
    ConvertOptions options;
    options.quant = DType::kF32;
    ConvertToCmf(*formats::OpenCheckpoint(golden::Path("hf/" + GetParam()).string()), At("m.cmf"),
                 options, pool_);
    file_ = CmfFile::Open(At("m.cmf"));
  }
  ~GroupedExperts() override { fs::remove_all(folder_); }

  std::string At(const std::string& name) const { return (folder_ / name).string(); }

  // m.cmf with a mask that `json` describes, as out.cmf.
  void Mask(const Json& json) const {
    MaskDescription mask(file_->contents().header);
    mask.name = "some";
    DescribeByJson(json, file_->contents().header, "d.json", &mask);
    AddMask(*file_, mask, false, At("out.cmf"));
  }

  void Load(const std::string& name, const std::string& task) {
    model::LoadOptions options;
    options.task = task;
    model::Model::Load(formats::OpenCheckpoint(At(name)), options, &pool_);
  }

  void ExpectRefused(const std::function<void()>& work, const std::string& word) {
    try {
      work();
      ADD_FAILURE() << "was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
      EXPECT_NE(error.message().find(word), std::string::npos) << error.message();
    }
  }

  // `source` with another header.
  void Again(const CmfFile& source, const Json& header, const std::string& name) const {
    formats::CmfPlan plan;
    plan.header = header;
    const Bytes masks =
        formats::cmf::SectionBytes(source.file_bytes(), source.contents().envelope.masks);
    plan.masks.assign(masks.begin(), masks.end());
    for (const TensorView& tensor : source.tensors()) {
      plan.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes.size()});
    }
    const auto writer = formats::CmfWriter::Create(std::move(plan), At(name));
    for (size_t i = 0; i < source.tensors().size(); ++i) {
      writer->Write(i, source.tensors()[i].bytes);
    }
    writer->Finish();
  }

  // m.cmf without the last expert of layer 1, as a tool that knows nothing of groups cuts it.
  void WriteCut(const std::string& name) const {
    const uint64_t last = model::ReadConfig(*file_).moe.num_experts - 1;
    const std::string gone = "model.layers.1.mlp.experts." + std::to_string(last) + ".";
    formats::CmfPlan plan;
    plan.header = file_->config();
    std::vector<Bytes> bytes;
    for (const TensorView& tensor : file_->tensors()) {
      if (tensor.name.starts_with(gone)) continue;
      std::vector<uint64_t> shape = tensor.shape;
      Bytes kept = tensor.bytes;
      if (tensor.name == "model.layers.1.mlp.gate.weight" ||
          tensor.name == "model.layers.1.mlp.expert_bias") {
        shape[0] = last;
        kept = kept.first(kept.size() / (last + 1) * last);
      }
      plan.tensors.push_back({tensor.name, tensor.dtype, shape, kept.size()});
      bytes.push_back(kept);
    }
    const auto writer = formats::CmfWriter::Create(std::move(plan), At(name));
    for (size_t i = 0; i < bytes.size(); ++i) writer->Write(i, bytes[i]);
    writer->Finish();
  }

  fs::path folder_;
  ThreadPool pool_{2};
  std::unique_ptr<CmfFile> file_;
};

TEST_P(GroupedExperts, NoMaskRestrictsThem) {
  ASSERT_GT(model::ReadConfig(*file_).moe.groups, 1u);
  ExpectRefused([&] { Mask({{"experts", {{"1", {{"dead", {0}}}}}}}); }, "groups");
  EXPECT_FALSE(fs::exists(At("out.cmf")));
  // All of them live, or other parts: nothing of the choice changes.
  EXPECT_NO_THROW(Mask({{"experts", "all"}}));
  EXPECT_NO_THROW(Load("out.cmf", "some"));
  EXPECT_NO_THROW(
      Mask({{"ffn", {{"0", {{"dead", {0, 3}}}}}}, {"heads", {{"1", {{"dead", {1}}}}}}}));
  EXPECT_NO_THROW(Load("out.cmf", "some"));
}

// A file that another tool gave such a mask: it runs without, and the mask is refused.
TEST_P(GroupedExperts, AMaskThatIsThereIsNotRun) {
  // Made where it is allowed, then the header says that there are groups.
  Json header = file_->config();
  const Json groups = header["arch"]["moewe"]["expert_groups"];
  ASSERT_TRUE(groups.is_object());
  header["arch"]["moewe"].erase("expert_groups");
  Again(*file_, header, "plain.cmf");
  file_ = CmfFile::Open(At("plain.cmf"));
  Mask({{"experts", {{"1", {{"dead", {0}}}}}}});
  const auto masked = CmfFile::Open(At("out.cmf"));
  header = masked->config();
  header["arch"]["moewe"]["expert_groups"] = groups;
  Again(*masked, header, "grouped.cmf");
  EXPECT_NO_THROW(Load("grouped.cmf", "none"));
  EXPECT_NO_THROW(Load("out.cmf", "some"));
  ExpectRefused([&] { Load("grouped.cmf", "some"); }, "groups");
}

TEST_P(GroupedExperts, NoneIsCutOut) {
  ExpertCounts counts;
  const auto config = model::ReadConfig(*file_);
  for (const auto& [layer, experts] : ExpertsByLayer(*file_)) {
    counts[layer].assign(experts, 0);
    counts[layer][0] = 1;
  }
  ExpectRefused([&] { PlanExpertCut(*file_, {counts, 0}, 0.5, "counts"); }, "groups");
  WriteCut("cut.cmf");
  ExpectRefused([&] { Load("cut.cmf", "none"); }, "groups");
  ExpectRefused([&] { model::ModelOutline(formats::OpenCheckpoint(At("cut.cmf")), {}, &pool_); },
                "groups");
}

INSTANTIATE_TEST_SUITE_P(All, GroupedExperts, testing::Values("deepseek_v2", "deepseek_v3"),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace moewe::convert
