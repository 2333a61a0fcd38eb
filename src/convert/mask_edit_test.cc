// Masks added to files, removed from them, and run: descriptions of every form, odd masks, and that
// the rest of the file stays.
#include "convert/mask_edit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

#include "formats/cmf/rewrite.h"
#include "formats/verify.h"
#include "golden.h"
#include "model/model.h"
#include "moewe/error.h"
#include "thrown.h"

namespace moewe::convert {
namespace {

namespace fs = std::filesystem;
using formats::CmfFile;

std::string File(const std::string& name) {
  return golden::Path("cmf/files/" + name + ".cmf").string();
}

class MaskEdit : public testing::Test {
 protected:
  MaskEdit() : folder_(fs::temp_directory_path() / ("moewe_masks." + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~MaskEdit() override { fs::remove_all(folder_); }

  std::string At(const std::string& name) const { return (folder_ / name).string(); }

  static bool Sound(const std::string& file) {
    ThreadPool pool(1);
    return formats::Verify(file, {}, &pool, [](uint64_t, uint64_t) {}).ok();
  }

  // Adds the mask that `json` describes to `source`, writes At("out.cmf") and opens it.
  std::unique_ptr<CmfFile> Add(const std::string& source, const Json& json,
                               bool make_default = false) const {
    const auto file = CmfFile::Open(source);
    MaskDescription mask(file->contents().header);
    mask.name = "new";
    DescribeByJson(json, file->contents().header, "d.json", &mask);
    AddMask(*file, mask, make_default, At("out.cmf"));
    EXPECT_TRUE(Sound(At("out.cmf")));
    return CmfFile::Open(At("out.cmf"));
  }

  // Last-position logits of a few tokens.
  std::vector<float> Logits(const std::string& file, const std::string& task) {
    model::LoadOptions options;
    options.activations = kernels::Activations::kF32;
    options.task = task;
    const auto model = model::Model::Load(formats::OpenCheckpoint(file), options, &pool_);
    model::KvPool kv(model->config(), model::KvType::kF32, 4);
    model::Sequence sequence(&kv);
    const std::vector<model::TokenId> ids{110, 47, 73};
    model::SequenceChunk chunk{&sequence, ids};
    std::vector<float> logits;
    model->Forward({&chunk, 1}, &logits);
    return logits;
  }

  fs::path folder_;
  ThreadPool pool_{1};
};

std::vector<int> Bits(const std::vector<Bytes>& rows, size_t row) {
  std::vector<int> live;
  for (size_t i = 0; i < rows[row].size() * 8; ++i) {
    if (formats::cmf::MaskBit(rows[row], i)) live.push_back(static_cast<int>(i));
  }
  return live;
}

TEST_F(MaskEdit, EveryFormOfARow) {
  const auto file =
      Add(File("masks_llama_f32"), {{"name", "forms"},
                                    {"description", "d"},
                                    {"priority", "Primary"},
                                    {"parent", "general"},
                                    {"quality", {{"metric", "m"}, {"value", 0.5}}},
                                    {"ffn", {{"1", {{"dead", {0, 95}}}}, {"2", "none"}}},
                                    {"heads", {"all", {0, 3}, {true, false, false, true}}},
                                    {"layers", {{"live", {0, 2}}}}});
  const auto& masks = file->contents().masks;
  ASSERT_EQ(masks.masks.size(), 5u);
  EXPECT_EQ(masks.default_task, "general");
  const auto& mask = masks.masks.back();
  EXPECT_EQ(mask.name, "forms");
  EXPECT_EQ(mask.task_id, 4u);
  EXPECT_EQ(mask.meta["parent"], "general");
  EXPECT_EQ(mask.meta["priority"], "Primary");
  EXPECT_EQ(mask.meta["quality"]["value"], 0.5);
  EXPECT_EQ(Bits(mask.ffn_rows, 0).size(), 96u);
  EXPECT_EQ(Bits(mask.ffn_rows, 1).size(), 94u);
  EXPECT_EQ(Bits(mask.ffn_rows, 2).size(), 0u);
  EXPECT_EQ(Bits(mask.head_rows, 0), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(Bits(mask.head_rows, 1), (std::vector<int>{0, 3}));
  EXPECT_EQ(Bits(mask.head_rows, 2), (std::vector<int>{0, 3}));
  EXPECT_EQ(mask.layer_gates, (std::vector<bool>{true, false, true}));
  // Layer 1 is off, layer 2 has no neurons: 96 of 288 live.
  EXPECT_NEAR(mask.meta["sparsity"].get<double>(), 2.0 / 3.0, 1e-12);
}

TEST_F(MaskEdit, HexRowsGiveAnExistingMaskAgain) {
  for (const char* name : {"masks_llama_f32", "loop_masks", "moe_qwen3_q4tp_expertmask"}) {
    const auto source = CmfFile::Open(File(name));
    const auto expected =
        golden::ReadJson(golden::Path("cmf/files/" + std::string(name) + ".expected.json"));
    for (size_t i = 0; i < expected["masks"].size(); ++i) {
      const auto& mask = expected["masks"][i];
      const auto& original = source->contents().masks.masks[i];
      Json layers = Json::array();
      for (size_t layer = 0; layer < original.layer_gates.size(); ++layer) {
        if (original.layer_gates[layer]) layers.push_back(layer);
      }
      Json json = {
          {"ffn", mask["ffn_masks_hex"]}, {"heads", mask["head_masks_hex"]}, {"layers", layers}};
      if (!mask["expert_masks_hex"].empty()) json["experts"] = mask["expert_masks_hex"];
      const auto file = Add(File(name), json);
      const auto& made = file->contents().masks.masks.back();
      EXPECT_TRUE(std::ranges::equal(made.blob, original.blob)) << name << " " << i;
    }
  }
}

TEST_F(MaskEdit, EverythingElseStays) {
  for (const char* name :
       {"unknown_header_fields", "legacy_zero_hashes", "layout_permuted", "layout_gap",
        "flags_nonzero", "skill_appended", "loop_masks", "moe_qwen2_q8", "mixed_all_dtypes"}) {
    SCOPED_TRACE(name);
    const auto source = CmfFile::Open(File(name));
    const auto added = Add(File(name), {{"ffn", {{"0", {1, 2, 3}}}}});
    const auto& before = source->contents();
    const auto& after = added->contents();
    EXPECT_EQ(before.envelope.directory_hash, after.envelope.directory_hash);
    EXPECT_EQ(before.envelope.flags, after.envelope.flags);
    EXPECT_TRUE(std::ranges::equal(SectionBytes(source->file_bytes(), before.envelope.directory),
                                   SectionBytes(added->file_bytes(), after.envelope.directory)));
    EXPECT_TRUE(std::ranges::equal(source->tokenizer_json(), added->tokenizer_json()));
    EXPECT_TRUE(std::ranges::equal(SectionBytes(source->file_bytes(), before.envelope.index),
                                   SectionBytes(added->file_bytes(), after.envelope.index)));
    ASSERT_EQ(source->tensors().size(), added->tensors().size());
    for (size_t i = 0; i < source->tensors().size(); ++i) {
      EXPECT_TRUE(std::ranges::equal(source->tensors()[i].bytes, added->tensors()[i].bytes));
    }
    for (size_t i = 0; i < before.masks.masks.size(); ++i) {
      EXPECT_TRUE(std::ranges::equal(before.masks.masks[i].blob, after.masks.masks[i].blob));
      Json meta = after.masks.masks[i].meta;
      meta["blob_off"] = before.masks.masks[i].meta["blob_off"];
      EXPECT_EQ(meta, before.masks.masks[i].meta);
    }
    Json old_header = before.header.json;
    Json new_header = after.header.json;
    old_header.erase("section_hashes");
    new_header.erase("section_hashes");
    EXPECT_EQ(old_header, new_header);
    EXPECT_TRUE(after.envelope.required_features & formats::cmf::kBinaryMasks);
    EXPECT_EQ((after.envelope.required_features & formats::cmf::kLoopMasks) != 0,
              after.header.num_loops > 1);

    // And away again, in place: the same features as before.
    RemoveMask(*added, "new", At("out.cmf"));
    const auto removed = CmfFile::Open(At("out.cmf"));
    EXPECT_EQ(removed->contents().envelope.required_features, before.envelope.required_features);
    EXPECT_EQ(removed->contents().masks.masks.size(), before.masks.masks.size());
    EXPECT_EQ(removed->contents().masks.masks.empty(),
              !removed->contents().envelope.masks.present());
    EXPECT_TRUE(Sound(At("out.cmf")));
  }
}

TEST_F(MaskEdit, DefaultTaskActsOnlyWhenAskedTo) {
  const std::string dense = File("dense_qwen2_f32");
  const Json half = {{"ffn", {{"0", {1, 2, 3}}}}};
  EXPECT_EQ(Add(dense, half)->contents().masks.default_task, "none");
  EXPECT_EQ(Logits(At("out.cmf"), ""), Logits(dense, ""));
  EXPECT_NE(Logits(At("out.cmf"), "new"), Logits(dense, ""));
  EXPECT_EQ(Add(dense, half, true)->contents().masks.default_task, "new");
  EXPECT_EQ(Logits(At("out.cmf"), ""), Logits(At("out.cmf"), "new"));
  EXPECT_EQ(Logits(At("out.cmf"), "none"), Logits(dense, ""));
  // This file's label "general" names no mask; one that is called so does not take effect by that.
  const std::string labelled = File("moe_qwen2_q8_expertmask");
  EXPECT_EQ(CmfFile::Open(labelled)->contents().masks.default_task, "general");
  EXPECT_EQ(Add(labelled, {{"name", "general"}})->contents().masks.default_task, "none");
}

TEST_F(MaskEdit, MasksThatKillWholeParts) {
  const std::string llama = File("masks_llama_f32");
  // All layers off: the embedding goes straight to the head.
  Add(llama, {{"layers", "none"}});
  const std::vector<float> none = Logits(At("out.cmf"), "new");
  // The same from the parts: no heads and no neurons in any layer.
  Add(llama, {{"heads", "none"}, {"ffn", "none"}});
  EXPECT_EQ(Logits(At("out.cmf"), "new"), none);
  // Everything live is the model itself.
  Add(llama, {{"heads", "all"}});
  EXPECT_EQ(Logits(At("out.cmf"), "new"), Logits(llama, "none"));
  // A layer with q/k/v biases and one with an expert too few.
  Add(File("dense_qwen2_f32"), {{"heads", {{"1", "none"}}}});
  EXPECT_NE(Logits(At("out.cmf"), "new"), Logits(File("dense_qwen2_f32"), "none"));
  const std::string moe = File("moe_qwen3_q4tp");
  Add(moe, {{"experts", {{"0", {5}}}}});  // fewer than top_k
  EXPECT_NE(Logits(At("out.cmf"), "new"), Logits(moe, "none"));
  EXPECT_EQ(Thrown([&] { Add(moe, {{"experts", {{"1", "none"}}}}); }), ErrorCode::kParse);
  // In a layer that is off nobody routes.
  Add(moe, {{"experts", {{"1", "none"}}}, {"layers", {0, 2}}});
  Add(moe, {{"experts", {{"1", {0}}}}, {"layers", {0, 2}}});
}

// Files whose masks another writer made: what loading says to a mask that this writer refuses.
TEST_F(MaskEdit, RunningAMaskThatDoesNotFit) {
  const auto with_mask = [&](const std::string& source, const auto& change) {
    const auto file = CmfFile::Open(source);
    MaskRows rows(file->contents().header);
    change(file->contents().header, &rows);
    Json meta = {
        {"default_task", "odd"},
        {"masks",
         {{{"task_id", 0}, {"name", "odd"}, {"has_expert_fields", !rows.experts.empty()}}}}};
    formats::CmfChanges changes;
    changes.masks = formats::cmf::SerializeMasks(meta, {rows.Blob()});
    formats::RewriteCmf(*file, changes, At("odd.cmf"));
  };
  std::string message;
  const auto load = [&](const std::string& task) {
    return Thrown([&] { Logits(At("odd.cmf"), task); }, &message);
  };
  with_mask(File("moe_qwen3_q4tp"), [](const auto& header, MaskRows* rows) {
    rows->experts.assign(header.num_layers, std::vector<uint8_t>(1, 0));
  });
  EXPECT_EQ(load("odd"), ErrorCode::kParse);
  EXPECT_EQ(load(""), ErrorCode::kParse);
  EXPECT_EQ(load("none"), std::nullopt);
  // Cut after the mask was made: all-ones says nothing, one dead bit names the wrong neuron.
  const auto& all_live = [](const auto&, MaskRows*) {};
  with_mask(File("defrag_q8_2f"), all_live);
  EXPECT_EQ(load("odd"), std::nullopt);
  with_mask(File("defrag_q8_2f"), [](const auto&, MaskRows* rows) { rows->ffn[1][0] = 0xfe; });
  EXPECT_EQ(load("odd"), ErrorCode::kUnsupported);
  with_mask(File("moe_qwen2_q8_moedefrag"), [](const auto& header, MaskRows* rows) {
    rows->experts.assign(header.num_layers, std::vector<uint8_t>(1, 0x0f));
  });
  EXPECT_EQ(load("odd"), ErrorCode::kUnsupported);
  EXPECT_EQ(load("other"), ErrorCode::kUnknownName);
  EXPECT_NE(message.find("'odd'"), std::string::npos);
  // One name twice.
  const auto file = CmfFile::Open(File("masks_llama_f32"));
  MaskRows rows(file->contents().header);
  formats::CmfChanges changes;
  changes.masks = formats::cmf::SerializeMasks(
      {{"masks", {{{"task_id", 0}, {"name", "a"}}, {{"task_id", 1}, {"name", "a"}}}}},
      {rows.Blob(), rows.Blob()});
  changes.index.emplace();
  formats::RewriteCmf(*file, changes, At("odd.cmf"));
  EXPECT_EQ(load("a"), ErrorCode::kParse);
  EXPECT_EQ(load(""), std::nullopt);
}

TEST_F(MaskEdit, WrongDescriptionsAreRefusedByName) {
  const std::string llama = File("masks_llama_f32");
  const auto code = [&](const Json& json) { return Thrown([&] { Add(llama, json); }); };
  for (const Json& json : std::vector<Json>{
           Json::array(),
           {{"nmae", "x"}},
           {{"name", 3}},
           {{"priority", "High"}},
           {{"quality", 1.0}},
           {{"quality", {{"metric", "x"}}}},
           {{"ffn", 1}},
           {{"ffn", {"all", "all"}}},  // 2 rows for 3 layers
           {{"ffn", {{"3", "all"}}}},  // no such layer
           {{"ffn", {{"x", "all"}}}},
           {{"ffn", {{"0", {96}}}}},
           {{"ffn", {{"0", {-1}}}}},
           {{"ffn", {{"0", {1, 1}}}}},
           {{"ffn", {{"0", {{"dead", {1, 1}}}}}}},
           {{"ffn", {{"0", {{"gone", {1}}}}}}},
           {{"ffn", {{"0", "ff"}}}},
           {{"ffn", {{"0", "zzzzzzzzzzzzzzzzzzzzzzzz"}}}},
           {{"heads", {{"0", "1f"}}}},  // a bit beyond the 4 heads
           {{"heads", {{"0", {true, false}}}}},
           {{"heads", {{"0", {true, false, 1, true}}}}},
           {{"layers", {3}}},
           {{"experts", "all"}},  // a dense model
       }) {
    EXPECT_EQ(code(json), ErrorCode::kParse) << json.dump();
  }
  EXPECT_EQ(code({{"name", "none"}}), ErrorCode::kUsage);
  EXPECT_EQ(code({{"name", ""}}), ErrorCode::kUsage);
  EXPECT_EQ(code({{"name", "general"}}), ErrorCode::kUsage);
  EXPECT_EQ(code({{"parent", "nobody"}}), ErrorCode::kUnknownName);
  EXPECT_EQ(Thrown([&] { Add(File("defrag_q8_2f"), {{"ffn", {{"1", {1}}}}}); }),
            ErrorCode::kUnsupported);
  EXPECT_FALSE(fs::exists(At("out.cmf")));
}

TEST_F(MaskEdit, RemovingKeepsFamiliesTogetherAndDropsAStaleIndex) {
  const auto file = Add(File("masks_llama_f32"), {{"parent", "heads"}});
  std::string message;
  EXPECT_EQ(Thrown([&] { RemoveMask(*file, "heads", At("o.cmf")); }), ErrorCode::kUsage);
  EXPECT_EQ(Thrown([&] { RemoveMask(*file, "nobody", At("o.cmf")); }, &message),
            ErrorCode::kUnknownName);
  EXPECT_NE(message.find("'ffn_only'"), std::string::npos);
  EXPECT_FALSE(fs::exists(At("o.cmf")));
  RemoveMask(*file, "general", At("o.cmf"));
  const auto removed = CmfFile::Open(At("o.cmf"));
  EXPECT_EQ(removed->contents().masks.default_task, "none");
  EXPECT_FALSE(removed->contents().envelope.index.present());
  EXPECT_TRUE(Sound(At("o.cmf")));
  EXPECT_EQ(Logits(At("o.cmf"), "ffn_only"), Logits(File("masks_llama_f32"), "ffn_only"));
}

TEST_F(MaskEdit, ArraysOfNumpy) {
  const auto npy = [](const std::string& type, const std::string& shape, size_t bytes) {
    std::string header =
        "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
    header.resize(118, ' ');
    std::string file = std::string("\x93NUMPY\x01\x00", 8) + '\x76' + '\0' + header;
    for (size_t i = 0; i < bytes; ++i) file += static_cast<char>(i % 3 == 0 ? 1 : 0);
    return std::vector<uint8_t>(file.begin(), file.end());
  };
  const auto header = CmfFile::Open(File("masks_llama_f32"))->contents().header;
  MaskDescription mask(header);
  DescribeByNpy(formats::ParseNpyBits(npy("|b1", "(3, 96)", 288), "a"), MaskPart::kFfn, header, "a",
                &mask);
  EXPECT_EQ(mask.rows.ffn[2][0], 0x49);
  DescribeByNpy(formats::ParseNpyBits(npy("|u1", "(3,)", 3), "a"), MaskPart::kLayers, header, "a",
                &mask);
  EXPECT_EQ(mask.rows.layers[0][0], 1);
  DescribeByNpy(formats::ParseNpyBits(npy("<i2", "(3, 4)", 24), "a"), MaskPart::kHeads, header, "a",
                &mask);
  EXPECT_EQ(mask.rows.heads[0][0], 0x0b);  // bytes 1 0 | 0 1 | 0 0 | 1 0
  const auto code = [&](const std::vector<uint8_t>& file) {
    return Thrown([&] {
      DescribeByNpy(formats::ParseNpyBits(file, "a"), MaskPart::kFfn, header, "a", &mask);
    });
  };
  EXPECT_EQ(code(npy("|b1", "(96, 3)", 288)), ErrorCode::kParse);
  EXPECT_EQ(code(npy("|b1", "(288,)", 288)), ErrorCode::kParse);
  EXPECT_EQ(code(npy("<f4", "(3, 96)", 1152)), ErrorCode::kUnsupported);
  EXPECT_EQ(code(npy("|b1", "(3, 96)", 287)), ErrorCode::kBounds);
  EXPECT_EQ(code(npy("|b1", "(99999999999, 99999999999)", 8)), ErrorCode::kBounds);
  EXPECT_EQ(code(npy("|b1", "3, 96", 288)), ErrorCode::kParse);
  EXPECT_EQ(code({1, 2, 3}), ErrorCode::kInvalidMagic);
  std::vector<uint8_t> cut = npy("|b1", "(3, 96)", 288);
  cut.resize(20);
  EXPECT_EQ(code(cut), ErrorCode::kBounds);
}

}  // namespace
}  // namespace moewe::convert
