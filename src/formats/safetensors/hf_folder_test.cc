#include "formats/safetensors/hf_folder.h"

#include <gtest/gtest.h>

#include "formats/test_util.h"
#include "golden.h"
#include "paths.h"

namespace moewe::formats {
namespace {

namespace fs = std::filesystem;

std::string OneTensor(const std::string& name, const std::string& dtype = "U8") {
  return Safetensors(
      "{\"" + name + "\":{\"dtype\":\"" + dtype + R"(","shape":[4],"data_offsets":[0,4]}})",
      "1234");
}

class HfFolderTest : public ScratchTest {
 protected:
  HfFolderTest() { Put("config.json", R"({"model_type":"llama","eos_token_id":7})"); }

  std::optional<ErrorCode> OpenFault() const {
    return Thrown([&] { OpenCheckpoint(folder_.string()); });
  }
  Json Bundle() {
    Put("model.safetensors", OneTensor("a"));
    return OpenCheckpoint(folder_.string())->chat_bundle();
  }
};

TEST_F(HfFolderTest, SingleFile) {
  Put("model.safetensors", OneTensor("a"));
  Put("other.safetensors", OneTensor("b"));
  Put("tokenizer.json", "{}");
  const auto checkpoint = OpenCheckpoint(folder_.string());
  EXPECT_EQ(checkpoint->kind(), CheckpointKind::kHuggingFace);
  EXPECT_EQ(checkpoint->config()["model_type"], "llama");
  ASSERT_NE(checkpoint->Find("a"), nullptr);
  EXPECT_EQ(checkpoint->Find("b"), nullptr);
  EXPECT_EQ(checkpoint->Find("a")->bytes[3], '4');
  EXPECT_EQ(checkpoint->tokenizer_json().size(), 2u);
  EXPECT_EQ(checkpoint->files().size(), 1u);
}

TEST_F(HfFolderTest, ShardsOfAnIndex) {
  Put("model.safetensors.index.json",
      R"({"metadata":{"total_size":8},"weight_map":{"a":"m-2.safetensors","b":"m-1.safetensors"}})");
  Put("m-1.safetensors", OneTensor("b"));
  Put("m-2.safetensors", OneTensor("a"));
  const auto checkpoint = OpenCheckpoint(folder_.string());
  ASSERT_EQ(checkpoint->tensors().size(), 2u);
  EXPECT_EQ(checkpoint->tensors()[0].name, "b");
  EXPECT_EQ(checkpoint->Find("a")->file_index, 1u);
  EXPECT_EQ(checkpoint->files()[1], At("m-2.safetensors"));

  Put("m-2.safetensors", OneTensor("c"));
  EXPECT_EQ(OpenFault(), ErrorCode::kMissingTensor);
  fs::remove(At("m-2.safetensors"));
  EXPECT_EQ(OpenFault(), ErrorCode::kNotFound);
}

TEST_F(HfFolderTest, AnIndexCannotReachOutOfItsFolder) {
  for (const char* file : {R"("../x.safetensors")", R"("/etc/passwd")", R"("a/b.safetensors")",
                           R"("..")", R"("")", "7"}) {
    Put("model.safetensors.index.json", R"({"weight_map":{"a":)" + std::string(file) + "}}");
    EXPECT_EQ(OpenFault(), ErrorCode::kParse) << file;
  }
  Put("model.safetensors.index.json", "{}");
  EXPECT_EQ(OpenFault(), ErrorCode::kParse);
}

TEST_F(HfFolderTest, AnyFilesAndDuplicates) {
  Put("x.safetensors", OneTensor("a"));
  Put("y.safetensors", OneTensor("b"));
  EXPECT_EQ(OpenCheckpoint(folder_.string())->tensors().size(), 2u);
  Put("y.safetensors", OneTensor("a"));
  EXPECT_EQ(OpenFault(), ErrorCode::kParse);
}

TEST_F(HfFolderTest, SymbolicLinksAsInTheCache) {
  Put("blobs/1234", OneTensor("a"));
  fs::create_symlink("blobs/1234", folder_ / "model.safetensors");
  EXPECT_NE(OpenCheckpoint(folder_.string())->Find("a"), nullptr);
}

TEST_F(HfFolderTest, MissingParts) {
  EXPECT_EQ(OpenFault(), ErrorCode::kNotFound);  // no weights
  Put("model.safetensors", OneTensor("a"));
  fs::remove(At("config.json"));
  EXPECT_EQ(OpenFault(), ErrorCode::kNotFound);
  Put("config.json", "[]");
  EXPECT_EQ(OpenFault(), ErrorCode::kParse);
}

TEST_F(HfFolderTest, ElementTypesWithoutACodecAreListed) {
  Put("model.safetensors",
      Safetensors(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                  R"("w":{"dtype":"F8_E4M3","shape":[2,2],"data_offsets":[4,8]}})",
                  "12345678"));
  const auto checkpoint = OpenCheckpoint(folder_.string());
  EXPECT_EQ(checkpoint->Find("w"), nullptr);
  ASSERT_EQ(checkpoint->opaque_tensors().size(), 1u);
  EXPECT_EQ(checkpoint->opaque_tensors()[0].name, "w");
  EXPECT_EQ(checkpoint->opaque_tensors()[0].dtype, "F8_E4M3");
}

TEST_F(HfFolderTest, OneFileAloneByItsBytes) {
  const auto checkpoint = OpenCheckpoint(Put("weights.bin", OneTensor("a")));
  EXPECT_NE(checkpoint->Find("a"), nullptr);
  EXPECT_TRUE(checkpoint->config().is_null());
  EXPECT_EQ(Thrown([&] { OpenCheckpoint(Put("x.safetensors", "no such format")); }),
            ErrorCode::kInvalidMagic);
  EXPECT_EQ(Thrown([&] { OpenCheckpoint(At("nothing")); }), ErrorCode::kNotFound);
}

TEST_F(HfFolderTest, ShrinkingIsReported) {
  const std::string path =
      Put("model.safetensors",
          Safetensors(R"({"a":{"dtype":"U8","shape":[65536],"data_offsets":[0,65536]}})",
                      std::string(65536, 'x')));
  const auto checkpoint = OpenCheckpoint(folder_.string());
  EXPECT_NO_THROW(checkpoint->CheckReadable());
  fs::resize_file(path, 4096);
  EXPECT_EQ(checkpoint->Find("a")->bytes[65000], 0);
  EXPECT_EQ(Thrown([&] { checkpoint->CheckReadable(); }), ErrorCode::kIo);
}

TEST_F(HfFolderTest, TemplateSources) {
  EXPECT_FALSE(Bundle().contains("chat_template"));
  Put("chat_template.json", R"({"chat_template":"from json"})");
  EXPECT_EQ(Bundle()["chat_template"], "from json");
  Put("tokenizer_config.json", R"({"chat_template":"from config"})");
  EXPECT_EQ(Bundle()["chat_template"], "from config");
  Put("tokenizer_config.json",
      R"({"chat_template":[{"name":"tool_use","template":"t"},{"name":"default","template":"d"}]})");
  EXPECT_EQ(Bundle()["chat_template"], "d");
  Put("chat_template.jinja", "from jinja");
  EXPECT_EQ(Bundle()["chat_template"], "from jinja");
  Put("chat_template.jinja", "\xff");
  EXPECT_EQ(Thrown([&] { Bundle(); }), ErrorCode::kParse);
}

TEST_F(HfFolderTest, EosIsTheUnionOfItsSources) {
  EXPECT_EQ(Bundle()["eos_token_ids"], Json({7}));
  Put("generation_config.json",
      R"({"eos_token_id":[1,7,106],"bos_token_id":2,"pad_token_id":null})");
  EXPECT_EQ(Bundle()["eos_token_ids"], Json({7, 1, 106}));
  Put("tokenizer_config.json",
      R"({"eos_token":{"content":"<end>","special":true},"pad_token":"<pad>",)"
      R"("added_tokens_decoder":{"50":{"content":"<end>"},"60":{"content":"<pad>"}}})");
  EXPECT_EQ(Bundle()["eos_token_ids"], Json({7, 1, 106, 50}));
  EXPECT_EQ(Bundle()["bos_token_id"], 2);
  EXPECT_EQ(Bundle()["pad_token_id"], 60);
  EXPECT_EQ(Bundle()["eos_token"], "<end>");
}

TEST_F(HfFolderTest, TokenIdsFromTheTokenizerFile) {
  Put("config.json", "{}");
  Put("special_tokens_map.json", R"({"eos_token":"</s>","additional_special_tokens":["<a>"]})");
  Put("tokenizer.json", R"({"added_tokens":[{"id":2,"content":"</s>","special":true}]})");
  EXPECT_EQ(Bundle()["eos_token_ids"], Json({2}));
  EXPECT_EQ(Bundle()["additional_special_tokens"], Json({"<a>"}));
}

TEST(HfFolderDemoTest, TheDemoModelOpens) {
  const auto checkpoint = OpenCheckpoint(paths::DemoModel());
  EXPECT_EQ(checkpoint->config()["model_type"], "qwen3_moe");
  const TensorView* embedding = checkpoint->Find("model.embed_tokens.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(embedding->dtype, DType::kBf16);
  EXPECT_EQ(embedding->shape, (std::vector<uint64_t>{4096, 192}));
  const Json& bundle = checkpoint->chat_bundle();
  EXPECT_EQ(bundle["eos_token_ids"], Json({4095, 4093}));
  EXPECT_EQ(bundle["generation"].dump(),
            R"({"do_sample":true,"temperature":0.7,"top_k":20,"top_p":0.9})");
  EXPECT_EQ(bundle["eos_token"], "<|im_end|>");
  EXPECT_FALSE(bundle.contains("bos_token"));
  EXPECT_EQ(checkpoint->tokenizer_json().front(), '{');
}

}  // namespace
}  // namespace moewe::formats
