// Re-encoding against files that the existing runtime made, resuming, and the choice of dtypes.
#include "convert/convert.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <optional>

#include "base/hash64.h"
#include "convert/dtype_choice.h"
#include "convert/tensor_encoder.h"
#include "formats/verify.h"
#include "golden.h"
#include "moewe/error.h"
#include "paths.h"
#include "thrown.h"

namespace moewe::convert {
namespace {

namespace fs = std::filesystem;

std::string Demo() { return paths::DemoModel(); }
std::string GoldenFile(const std::string& name) {
  return golden::Path("cmf/files/" + name + ".cmf").string();
}

class ConvertTest : public testing::Test {
 protected:
  ConvertTest()
      : folder_(fs::temp_directory_path() / ("moewe_convert_test." + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~ConvertTest() override { fs::remove_all(folder_); }
  std::string At(const std::string& name) const { return (folder_ / name).string(); }
  void Convert(const formats::Checkpoint& source, const ConvertOptions& options) {
    ConvertToCmf(source, dst_, options, pool_);
  }

  fs::path folder_;
  std::string dst_ = (folder_ / "out.cmf").string();
  ThreadPool pool_{2};
};

std::map<std::string, std::pair<DType, uint64_t>> Hashes(const std::string& path) {
  std::map<std::string, std::pair<DType, uint64_t>> hashes;
  const auto file = formats::OpenCheckpoint(path);
  for (const formats::TensorView& tensor : file->tensors()) {
    EXPECT_EQ(HashBytes(tensor.bytes), tensor.hash) << tensor.name;
    hashes[tensor.name] = {tensor.dtype, tensor.hash};
  }
  return hashes;
}

TEST_F(ConvertTest, ReencodingGivesTheBytesOfExistingFiles) {
  const struct {
    const char* from;
    const char* to;
    DType quant;
  } kPairs[] = {{"moe_qwen2_f32", "moe_qwen2_q8", DType::kQ8Row},
                {"masks_llama_f32", "masks_llama_q8row", DType::kQ8Row},
                {"dense_qwen2_f32", "unsharded_q8_2f", DType::kQ82f}};
  for (const auto& pair : kPairs) {
    const auto source = formats::OpenCheckpoint(GoldenFile(pair.from));
    ConvertOptions options;
    options.quant = pair.quant;
    ConvertToCmf(*source, At("out.cmf"), options, pool_);
    EXPECT_EQ(Hashes(At("out.cmf")), Hashes(GoldenFile(pair.to))) << pair.from;
    EXPECT_TRUE(std::ranges::equal(formats::OpenCheckpoint(At("out.cmf"))->tokenizer_json(),
                                   source->tokenizer_json()));
  }
}

// The demo model with another header of its weights, or other bytes.
std::string EditedDemo(const fs::path& folder,
                       const std::function<void(nlohmann::ordered_json&, uint8_t* data)>& edit) {
  fs::create_directories(folder);
  fs::copy_file(Demo() + "/config.json", folder / "config.json");
  const std::vector<uint8_t> file = golden::ReadBytes(Demo() + "/model.safetensors");
  uint64_t size = 0;
  std::memcpy(&size, file.data(), sizeof(size));
  const auto data = file.begin() + 8 + static_cast<ptrdiff_t>(size);
  auto header = nlohmann::ordered_json::parse(file.begin() + 8, data);
  std::vector<uint8_t> content(data, file.end());
  edit(header, content.data());
  const std::string text = header.dump();
  size = text.size();
  std::ofstream out(folder / "model.safetensors", std::ios::binary);
  out.write(reinterpret_cast<const char*>(&size), sizeof(size));
  out << text;
  out.write(reinterpret_cast<const char*>(content.data()),
            static_cast<std::streamsize>(content.size()));
  return folder.string();
}

void Rename(nlohmann::ordered_json& header, const std::string& from, const std::string& to) {
  header[to] = header[from];
  header.erase(from);
}

constexpr const char* kUpProj = "model.layers.1.mlp.experts.3.up_proj.weight";

TEST_F(ConvertTest, StoppedConversionLeavesNoFileAndResumesToTheSameBytes) {
  const auto source = formats::OpenCheckpoint(Demo());
  ConvertOptions options;
  options.quant = DType::kQ4tp;
  std::vector<std::string> notes;
  options.note = [&](const std::string& line) { notes.push_back(line); };
  ConvertToCmf(*source, At("whole.cmf"), options, pool_);
  EXPECT_TRUE(notes.empty());
  options.progress = [](const ConvertProgress& state) {
    EXPECT_EQ(state.tensors_total, 422u);
    if (state.tensors == 100) throw Error(ErrorCode::kInterrupted, "stop");
  };
  EXPECT_EQ(Thrown([&] { Convert(*source, options); }), ErrorCode::kInterrupted);
  EXPECT_FALSE(fs::exists(dst_));
  options.progress = nullptr;
  options.resume = true;
  ThreadPool single(1);
  ConvertToCmf(*source, dst_, options, single);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(notes[0].starts_with("resuming: 100 of 422")) << notes[0];
  EXPECT_EQ(golden::ReadBytes(dst_), golden::ReadBytes(At("whole.cmf")));
}

TEST_F(ConvertTest, AnInterruptedRunOfAnotherKindIsNotContinued) {
  const std::string folder = EditedDemo(folder_ / "model", [](auto&, uint8_t*) {});
  const auto last_note = [&](DType quant, bool resume, bool stop) {
    std::string note;
    ConvertOptions options;
    options.quant = quant;
    options.resume = resume;
    options.note = [&](const std::string& line) { note = line; };
    if (stop) {
      options.progress = [](const ConvertProgress& state) {
        if (state.tensors == 9) throw Error(ErrorCode::kInterrupted, "stop");
      };
    }
    const auto source = formats::OpenCheckpoint(folder);
    EXPECT_EQ(Thrown([&] { Convert(*source, options); }).has_value(), stop);
    return note;
  };
  const auto has = [](const std::string& note, const char* words) {
    EXPECT_NE(note.find(words), std::string::npos) << note;
  };
  last_note(DType::kQ4tp, false, true);
  has(last_note(DType::kQ8Row, true, true), "options are not those");
  has(last_note(DType::kQ8Row, true, true), "resuming: 9 of");
  // The same bytes at another time: moewe can't know that they are the same.
  fs::last_write_time(
      folder_ / "model/model.safetensors",
      fs::last_write_time(folder_ / "model/model.safetensors") + std::chrono::seconds(2));
  has(last_note(DType::kQ8Row, true, true), "source is not the one");
  has(last_note(DType::kQ8Row, false, true), "--resume would have continued");
  fs::resize_file(dst_ + ".partial.journal", 30);
  has(last_note(DType::kQ8Row, true, true), "damaged: starting over");
  fs::resize_file(dst_ + ".partial.journal", 24 + 5 * 40 + 7);
  has(last_note(DType::kQ8Row, true, true), "resuming: 5 of");
  fs::copy_file(dst_ + ".partial.journal", At("journal"));
  fs::remove(dst_ + ".partial.journal");
  {
    const auto source = formats::OpenCheckpoint(folder);
    EXPECT_EQ(Thrown([&] { Convert(*source, {}); }), ErrorCode::kUsage);  // not ours to overwrite
  }
  fs::rename(At("journal"), dst_ + ".partial.journal");
  fs::resize_file(dst_ + ".partial.journal", 5);  // died before it had a head
  has(last_note(DType::kQ8Row, true, false), "damaged: starting over");
  has(last_note(DType::kQ8Row, true, false), "nothing to resume");
  const std::vector<uint8_t> resumed = golden::ReadBytes(dst_);
  last_note(DType::kQ8Row, false, false);
  EXPECT_EQ(golden::ReadBytes(dst_), resumed);
}

TEST_F(ConvertTest, TwoConversionsToOneFileAreRefused) {
  const auto source = formats::OpenCheckpoint(Demo());
  ConvertOptions options;
  options.progress = [&](const ConvertProgress& state) {
    if (state.tensors != 5) return;
    EXPECT_EQ(Thrown([&] { ConvertToCmf(*source, dst_, {}, pool_); }), ErrorCode::kIo);
  };
  ConvertToCmf(*source, dst_, options, pool_);
  EXPECT_TRUE(formats::Verify(dst_, {}, &pool_, [](uint64_t, uint64_t) {}).ok());
}

TEST_F(ConvertTest, TheSourceIsNeverTheDestination) {
  fs::copy_file(GoldenFile("dense_qwen2_f32"), At("a.cmf"));
  const std::vector<uint8_t> before = golden::ReadBytes(At("a.cmf"));
  fs::create_symlink("a.cmf", At("link.cmf"));
  fs::create_hard_link(At("a.cmf"), At("hard.cmf"));
  const auto source = formats::OpenCheckpoint(At("a.cmf"));
  for (const std::string& dst : {At("a.cmf"), At("link.cmf"), At("hard.cmf"), At("./x/../a.cmf")}) {
    fs::create_directories(folder_ / "x");
    EXPECT_EQ(Thrown([&] { ConvertToCmf(*source, dst, {}, pool_); }), ErrorCode::kUsage) << dst;
  }
  // The file that writing goes through, too.
  fs::copy_file(At("a.cmf"), At("b.cmf.partial"));
  const auto partial = formats::OpenCheckpoint(At("b.cmf.partial"));
  EXPECT_EQ(Thrown([&] { ConvertToCmf(*partial, At("b.cmf"), {}, pool_); }), ErrorCode::kUsage);
  EXPECT_EQ(golden::ReadBytes(At("b.cmf.partial")), before);
  // A model folder, and the one that its links lead to.
  fs::create_directories(folder_ / "snapshot");
  fs::create_directories(folder_ / "blobs");
  fs::copy_file(Demo() + "/config.json", folder_ / "snapshot/config.json");
  fs::copy_file(Demo() + "/model.safetensors", folder_ / "blobs/abc.cmf");
  fs::create_symlink("../blobs/abc.cmf", folder_ / "snapshot/model.safetensors");
  const auto model = formats::OpenCheckpoint(At("snapshot"));
  for (const std::string& dst :
       {At("snapshot/m.cmf"), At("snapshot/model.safetensors"), At("blobs/abc.cmf")}) {
    EXPECT_EQ(Thrown([&] { ConvertToCmf(*model, dst, {}, pool_); }), ErrorCode::kUsage) << dst;
  }
  EXPECT_EQ(golden::ReadBytes(At("a.cmf")), before);
  EXPECT_FALSE(fs::exists(At("a.cmf.partial")));
  EXPECT_EQ(Thrown([&] { ConvertToCmf(*source, At("x"), {}, pool_); }), ErrorCode::kUsage);
  EXPECT_EQ(Thrown([&] { ConvertToCmf(*source, "/dev/null", {}, pool_); }), ErrorCode::kUsage);
  EXPECT_EQ(Thrown([&] { ConvertToCmf(*source, At("no/x.cmf"), {}, pool_); }),
            ErrorCode::kNotFound);
}

TEST_F(ConvertTest, AFlippedBitInTheSourceIsFoundCopiedOrEncoded) {
  fs::copy_file(GoldenFile("dense_qwen2_f32"), At("a.cmf"));
  const auto where = [&] {
    const auto file = formats::OpenCheckpoint(At("a.cmf"));
    return file->tensors()[file->tensors().size() / 2].file_offset + 5;
  }();
  {
    std::fstream file(At("a.cmf"), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(where));
    const auto byte = static_cast<char>(file.get() ^ 1);
    file.seekp(static_cast<std::streamoff>(where));
    file.put(byte);
  }
  const auto source = formats::OpenCheckpoint(At("a.cmf"));
  for (const std::optional<DType> quant : {std::optional<DType>(), std::optional(DType::kQ8Row)}) {
    ConvertOptions options;
    options.quant = quant;
    EXPECT_EQ(Thrown([&] { Convert(*source, options); }), ErrorCode::kHashMismatch);
    EXPECT_FALSE(fs::exists(dst_));
  }
}

TEST_F(ConvertTest, SourcesThatCouldNotRunAreRefusedBeforeAnythingIsWritten) {
  const auto code = [&](const std::function<void(nlohmann::ordered_json&)>& edit) {
    fs::remove_all(folder_ / "model");
    const auto source = formats::OpenCheckpoint(EditedDemo(
        folder_ / "model", [&](nlohmann::ordered_json& header, uint8_t*) { edit(header); }));
    const auto thrown = Thrown([&] { Convert(*source, {}); });
    EXPECT_FALSE(fs::exists(dst_ + ".partial"));
    return thrown;
  };
  EXPECT_EQ(code([](auto& header) { Rename(header, kUpProj, "visual.x"); }),
            ErrorCode::kMissingTensor);
  EXPECT_EQ(code([](auto& header) { Rename(header, "model.norm.weight", "visual.x"); }),
            ErrorCode::kMissingTensor);
  EXPECT_EQ(code([](auto& header) {
              header[kUpProj]["dtype"] = "F8_E4M3";
              header[kUpProj]["shape"] = {128, 192};
            }),
            ErrorCode::kUnsupported);
  EXPECT_EQ(code([](auto& header) {
              header[kUpProj]["dtype"] = "U8";
              header[kUpProj]["shape"] = {128 * 192, 1};
            }),
            ErrorCode::kUnsupported);
  EXPECT_EQ(code([](auto& header) {
              Rename(header, kUpProj, "model.layers.1.mlp.experts.3.up_proj.qweight");
              header["model.layers.1.mlp.experts.3.up_proj.qweight"]["dtype"] = "I32";
              header["model.layers.1.mlp.experts.3.up_proj.qweight"]["shape"] = {32, 192};
            }),
            ErrorCode::kUnsupported);
  EXPECT_EQ(code([](auto& header) {
              Rename(header, kUpProj, "model.layers.1.mlp.experts.3.up_proj.scales");
            }),
            ErrorCode::kUnsupported);
}

TEST_F(ConvertTest, ValuesBeyondTheRangeOfF16) {
  // 65536 and 1e30 as bf16 in a matrix, then in a vector.
  const auto source_with = [&](const char* name, const char* tensor, uint16_t bits) {
    return formats::OpenCheckpoint(
        EditedDemo(folder_ / name, [&](nlohmann::ordered_json& header, uint8_t* data) {
          std::memcpy(data + header[tensor]["data_offsets"][0].get<size_t>() + 10, &bits, 2);
        }));
  };
  const auto thrown = [&](const formats::Checkpoint& source, DType quant) {
    ConvertOptions options;
    options.quant = quant;
    return Thrown([&] { Convert(source, options); });
  };
  constexpr uint16_t k65536 = 0x4780;
  constexpr uint16_t k1e30 = 0x7149;
  constexpr uint16_t kNan = 0x7FC0;
  const auto matrix = source_with("matrix", kUpProj, k65536);
  EXPECT_EQ(thrown(*matrix, DType::kF16), ErrorCode::kUnsupported);
  EXPECT_EQ(thrown(*matrix, DType::kBf16), std::nullopt);
  EXPECT_EQ(thrown(*matrix, DType::kQ8Row), std::nullopt);  // its scale is small
  const auto huge = source_with("huge", kUpProj, k1e30);
  for (const DType quant :
       {DType::kF16, DType::kQ8Row, DType::kQ82f, DType::kQ4Block, DType::kQ4Tiled, DType::kQ4tp}) {
    EXPECT_EQ(thrown(*huge, quant), ErrorCode::kUnsupported) << DTypeName(quant);
  }
  const auto nan = source_with("nan", kUpProj, kNan);
  EXPECT_EQ(thrown(*nan, DType::kQ8Row), ErrorCode::kUnsupported);
  EXPECT_EQ(thrown(*nan, DType::kF32), std::nullopt);
  const auto vector = source_with("vector", "model.norm.weight", k1e30);
  EXPECT_EQ(thrown(*vector, DType::kQ8Row), std::nullopt);
  EXPECT_EQ(formats::OpenCheckpoint(dst_)->Find("model.norm.weight")->dtype, DType::kF32);
}

TEST_F(ConvertTest, RulesForSomeTensors) {
  const auto source = formats::OpenCheckpoint(Demo());
  ConvertOptions options;
  options.quant = DType::kQ8Row;
  std::vector<std::string> notes;
  options.note = [&](const std::string& line) { notes.push_back(line); };
  options.tensor_rules = {ParseTensorRule("model.embed_tokens=bf16"),
                          ParseTensorRule("*.experts.*.down_proj=q4t"),
                          ParseTensorRule("model.embed_*=f32"),
                          ParseTensorRule("model.layers.2.input_layernorm.weight=q4")};
  ConvertToCmf(*source, dst_, options, pool_);
  const auto file = formats::OpenCheckpoint(dst_);
  const auto dtype = [&](const char* name) { return file->Find(name)->dtype; };
  EXPECT_EQ(dtype("model.embed_tokens.weight"), DType::kBf16);  // the first rule decides
  EXPECT_EQ(dtype("model.layers.0.mlp.experts.7.down_proj.weight"), DType::kQ4Tiled);
  EXPECT_EQ(dtype("model.layers.0.mlp.experts.7.up_proj.weight"), DType::kQ8Row);
  EXPECT_EQ(dtype("model.layers.2.input_layernorm.weight"), DType::kF16);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("written as f16: model.layers.2.input_layernorm"), std::string::npos);

  options.tensor_rules = {ParseTensorRule("*.mlp.expert.*=q4t")};  // experts
  EXPECT_EQ(Thrown([&] { Convert(*source, options); }), ErrorCode::kUnknownName);
  EXPECT_EQ(Thrown([] { ParseTensorRule("*.mlp"); }), ErrorCode::kUsage);
  EXPECT_EQ(Thrown([] { ParseTensorRule("*.mlp=q9"); }), ErrorCode::kUsage);
}

// Rules for the backbone leave skills as they are; those that name a skill are for it alone.
TEST_F(ConvertTest, RulesForSkills) {
  const auto source = formats::OpenCheckpoint(GoldenFile("skills_2"));
  ConvertOptions options;
  options.quant = DType::kQ82f;
  options.tensor_rules = {ParseTensorRule("*.up_proj=bf16"), ParseTensorRule("skill.code.*=q4t")};
  Convert(*source, options);
  const auto file = formats::OpenCheckpoint(dst_);
  ASSERT_EQ(file->tensors().size(), source->tensors().size());
  size_t of_code = 0;
  for (const formats::TensorView& tensor : file->tensors()) {
    const DType before = source->Find(tensor.name)->dtype;
    DType wanted = before == DType::kF16 ? before : DType::kQ82f;
    if (tensor.name.ends_with(".up_proj.weight")) wanted = DType::kBf16;
    if (tensor.name.starts_with("skill.")) wanted = before;
    if (tensor.name.starts_with("skill.code.")) wanted = DType::kQ4Tiled;
    of_code += tensor.name.starts_with("skill.code.") ? 1 : 0;
    EXPECT_EQ(tensor.dtype, wanted) << tensor.name;
  }
  EXPECT_GT(of_code, 0u);
  EXPECT_TRUE(formats::Verify(dst_, {}, &pool_, [](uint64_t, uint64_t) {}).ok());
  options.tensor_rules = {ParseTensorRule("skill.nobody.*=q4t")};
  EXPECT_EQ(Thrown([&] { Convert(*source, options); }), ErrorCode::kUnknownName);
}

TEST_F(ConvertTest, LayoutsThatCannotHoldAMatrix) {
  const auto source = formats::OpenCheckpoint(GoldenFile("defrag_q8_2f"));
  std::vector<std::string> notes;
  ConvertOptions options;
  options.note = [&](const std::string& line) { notes.push_back(line); };
  options.tensor_rules = {ParseTensorRule("*.down_proj=q4t")};
  const ConvertResult result = ConvertToCmf(*source, dst_, options, pool_);
  // FFN widths 64, 52, 80: two of them are no multiple of 32.
  EXPECT_EQ(result.fallbacks, 2u);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("written as q8_2f: model.layers.1.mlp.down_proj.weight and 1 more"),
            std::string::npos);
  const auto file = formats::OpenCheckpoint(dst_);
  EXPECT_EQ(file->Find("model.layers.0.mlp.down_proj.weight")->dtype, DType::kQ4Tiled);
  EXPECT_EQ(file->Find("model.layers.1.mlp.down_proj.weight")->dtype, DType::kQ82f);
}

// Every layout whose size only encoding tells, on a model of experts, with any number of threads.
TEST_F(ConvertTest, LayoutsOfUnknownSize) {
  const auto source = formats::OpenCheckpoint(GoldenFile("moe_qwen2_f32"));
  for (const char* name : {"vbit", "q1", "q1s", "q1t"}) {
    SCOPED_TRACE(name);
    ConvertOptions options;
    options.quant = ParseQuant(name);
    Convert(*source, options);
    const auto file = formats::OpenCheckpoint(dst_);
    EXPECT_EQ(file->config()["quant_type"], "VBIT");
    EXPECT_EQ(file->Find("model.layers.1.mlp.experts.3.up_proj.weight")->dtype, *options.quant);
    EXPECT_EQ(file->Find("model.layers.1.mlp.gate.weight")->dtype, DType::kF16);
    ThreadPool single(1);
    EXPECT_TRUE(formats::Verify(dst_, {}, &single, [](uint64_t, uint64_t) {}).ok());
    ConvertToCmf(*source, At("single.cmf"), options, single);
    EXPECT_EQ(golden::ReadBytes(At("single.cmf")), golden::ReadBytes(dst_));
    // The size that shards are planned by is the size that is written.
    const ConvertPlan plan = PlanConversion(*source, options.quant, {});
    TensorEncoder encoder(*source, plan, options.encode, pool_);
    for (size_t i = 0; i < plan.tensors.size(); ++i) {
      EXPECT_EQ(encoder.Size(i), file->tensors()[i].bytes.size()) << file->tensors()[i].name;
    }
  }
}

// Average width of the rows of all experts' matrices of one layer and projection.
double MeanWidth(const formats::Checkpoint& file, const std::string& projection, size_t expert) {
  const formats::TensorView* tensor = file.Find(
      "model.layers.1.mlp.experts." + std::to_string(expert) + "." + projection + ".weight");
  const auto rows = static_cast<ptrdiff_t>(tensor->matrix().rows);
  return std::accumulate(tensor->bytes.begin(), tensor->bytes.begin() + rows, 0.0) /
         static_cast<double>(rows);
}

TEST_F(ConvertTest, ExpertsShareTheVbitBudget) {
  const auto source = formats::OpenCheckpoint(GoldenFile("moe_qwen2_f32"));
  const size_t experts = source->config()["arch"]["moe"]["num_experts"];
  ConvertOptions options;
  options.quant = DType::kVbitRo;
  for (const float mean : {4.25f, 5.5f}) {
    options.encode.options.mean_bits = mean;
    Convert(*source, options);
    double sum = 0.0;
    for (size_t e = 0; e < experts; ++e) {
      sum += MeanWidth(*formats::OpenCheckpoint(dst_), "up_proj", e);
    }
    EXPECT_NEAR(sum / static_cast<double>(experts), static_cast<double>(mean), 0.02);
  }
  const double before = MeanWidth(*formats::OpenCheckpoint(dst_), "up_proj", 2);
  for (uint32_t layer = 0; layer < 4; ++layer) {
    options.encode.route_counts[layer].assign(experts, 10);
    options.encode.route_counts[layer][2] = 10000;
  }
  Convert(*source, options);
  EXPECT_GT(MeanWidth(*formats::OpenCheckpoint(dst_), "up_proj", 2), before + 0.5);
  options.encode.route_counts[1].pop_back();
  EXPECT_EQ(Thrown([&] { Convert(*source, options); }), ErrorCode::kUsage);
}

TEST_F(ConvertTest, OptionsThatDecideBytesArePartOfWhatIsResumed) {
  const auto source = formats::OpenCheckpoint(GoldenFile("moe_qwen2_f32"));
  ConvertOptions options;
  options.quant = DType::kVbitRo;
  options.progress = [](const ConvertProgress& state) {
    if (state.tensors == 5) throw Error(ErrorCode::kInterrupted, "stop");
  };
  EXPECT_THROW(Convert(*source, options), Error);
  std::string said;
  options.note = [&](const std::string& line) { said += line; };
  options.progress = nullptr;
  options.resume = true;
  options.encode.options.mean_bits = 6.0f;
  Convert(*source, options);
  EXPECT_NE(said.find("starting over"), std::string::npos) << said;
  options.resume = false;
  ConvertToCmf(*source, At("whole.cmf"), options, pool_);
  EXPECT_EQ(golden::ReadBytes(At("whole.cmf")), golden::ReadBytes(dst_));
}

TEST_F(ConvertTest, ShardsOfAConversionMergeToTheSameTensors) {
  const auto source = formats::OpenCheckpoint(GoldenFile("moe_qwen2_f32"));
  for (const char* name : {"q8", "vbit"}) {
    SCOPED_TRACE(name);
    ConvertOptions options;
    options.quant = ParseQuant(name);
    ConvertToCmf(*source, At("whole.cmf"), options, pool_);
    options.shard_max = fs::file_size(At("whole.cmf")) / 3;
    const ConvertResult result = ConvertToCmf(*source, At("set.cmf"), options, pool_);
    ASSERT_GE(result.files.size(), 3u);
    for (const std::string& file : result.files) EXPECT_LE(fs::file_size(file), *options.shard_max);
    EXPECT_FALSE(fs::exists(At("set.cmf")));
    EXPECT_EQ(Hashes(result.files[1]), Hashes(At("whole.cmf")));
    // And back: a set becomes one file again, without a trace of having been divided.
    ConvertToCmf(*formats::OpenCheckpoint(result.files[2]), At("again.cmf"), {}, pool_);
    EXPECT_EQ(golden::ReadBytes(At("again.cmf")), golden::ReadBytes(At("whole.cmf")));
    // Dividing a set in the same way would write over what is read.
    ConvertOptions same;
    same.shard_max = options.shard_max;
    const auto set = formats::OpenCheckpoint(result.files[0]);
    EXPECT_EQ(Thrown([&] { ConvertToCmf(*set, At("set.cmf"), same, pool_); }), ErrorCode::kUsage);
    for (const std::string& file : result.files) fs::remove(file);
  }
}

TEST(GlobTest, StarsAndQuestionMarks) {
  EXPECT_TRUE(GlobMatches("*.down_proj.*", "model.layers.0.mlp.down_proj.weight"));
  EXPECT_TRUE(GlobMatches("lm_hea?.weight", "lm_head.weight"));
  EXPECT_FALSE(GlobMatches("lm_head", "lm_head.weight"));
  EXPECT_FALSE(GlobMatches("*.bias", "lm_head.weight"));
}

}  // namespace
}  // namespace moewe::convert
