// Models whose experts are streamed: the bits of the resident model, whatever the arena, the chunk
// and the disk; faults of reads end a step and nothing else.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "fake_disk.h"
#include "formats/checkpoint.h"
#include "formats/cmf/writer.h"
#include "golden.h"
#include "model/kv_cache.h"
#include "model/model.h"
#include "model/outline.h"
#include "moewe/error.h"
#include "paths.h"
#include "tiny_model.h"

namespace moewe::model {
namespace {

using Checkpoint = std::shared_ptr<const formats::Checkpoint>;

std::string Hf(const std::string& family) { return golden::Path("hf/" + family).string(); }
std::string Cmf(const std::string& name) { return golden::Path("cmf/files/" + name).string(); }

// A model with the checkpoint that it may disturb.
class Subject {
 public:
  explicit Subject(const std::string& path,
                   kernels::Activations activations = kernels::Activations::kInt8)
      : threads_(2), file_(formats::OpenCheckpoint(path)) {
    options_.activations = activations;
    const ModelOutline outline(file_, options_, &threads_);
    stored_ = outline.stored();
  }

  LoadOptions& options() { return options_; }
  const StoredExperts& stored() const { return stored_; }

  std::unique_ptr<Model> Resident() { return Load(std::nullopt); }

  // From the real files.
  std::unique_ptr<Model> Streamed(uint64_t slots) {
    StreamOptions stream;
    stream.arena_bytes = stored_.ArenaBytes(slots);
    return Load(std::move(stream));
  }

  // From copies of them.
  std::unique_ptr<Model> StreamedFrom(const std::shared_ptr<FakeDisk>& disk, uint64_t slots,
                                      const FakeDiskOptions& how = {},
                                      const std::string& frequencies = {}) {
    StreamOptions stream;
    stream.arena_bytes = stored_.ArenaBytes(slots);
    stream.frequencies = frequencies;
    stream.open_reader = [disk, how](std::span<const std::string>, std::span<uint8_t>) {
      return disk->MakeReader(how);
    };
    return Load(stream);
  }

  std::shared_ptr<FakeDisk> Copy() const {
    auto disk = std::make_shared<FakeDisk>();
    for (const std::string& file : file_->files()) disk->AddFile(file);
    return disk;
  }

 private:
  std::unique_ptr<Model> Load(std::optional<StreamOptions> stream) {
    LoadOptions options = options_;
    options.stream = std::move(stream);
    return Model::Load(file_, options, &threads_);
  }

  ThreadPool threads_;
  Checkpoint file_;
  LoadOptions options_;
  StoredExperts stored_;
};

// Logits of all of a prompt of `length`, `chunk` tokens a step, and then of greedy tokens.
std::vector<float> LogitsOf(Model* model, size_t chunk, size_t length = 21, size_t greedy = 6) {
  KvPool pool(model->config(), KvType::kF16, 16);
  Sequence sequence(&pool);
  const size_t vocab = model->config().vocab_size;
  std::vector<TokenId> ids;
  for (size_t i = 0; i < length; ++i) ids.push_back(static_cast<TokenId>((i * i * 7 + 3) % vocab));
  std::vector<float> all;
  while (sequence.length() < length + greedy) {
    if (sequence.length() >= length) {
      const auto last = all.end() - static_cast<ptrdiff_t>(vocab);
      ids.push_back(static_cast<TokenId>(std::max_element(last, all.end()) - last));
    }
    SequenceChunk part;
    part.sequence = &sequence;
    part.tokens = std::span(ids).subspan(sequence.length());
    part.tokens = part.tokens.first(std::min(chunk, part.tokens.size()));
    part.logits = SequenceChunk::Logits::kAll;
    model->Forward({&part, 1}, &all);
  }
  return all;
}

ErrorCode CodeOf(const std::function<void()>& what) {
  try {
    what();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kInternal;
}

std::string MessageOf(const std::function<void()>& what) {
  try {
    what();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

class StreamedFamily : public testing::TestWithParam<std::string> {};

TEST_P(StreamedFamily, GivesTheBitsOfTheResidentModel) {
  Subject subject(GetParam());
  const std::vector<float> expected = LogitsOf(subject.Resident().get(), 512);
  const StoredExperts& stored = subject.stored();
  ASSERT_GT(stored.count, 0u);
  const uint64_t half = std::max(stored.least_slots, stored.count / 2);
  const auto one_a_layer =
      static_cast<uint64_t>(std::count_if(stored.layers.begin(), stored.layers.end(),
                                          [](const auto& layer) { return !layer.empty(); }));
  for (const uint64_t slots : {uint64_t{1}, one_a_layer, stored.least_slots, half, stored.count}) {
    for (const size_t chunk : {512, 4, 1}) {
      SCOPED_TRACE(std::to_string(slots) + " slots, chunk " + std::to_string(chunk));
      const auto disk = subject.Copy();
      const auto model = subject.StreamedFrom(disk, slots, {.seed = slots * 10 + chunk});
      EXPECT_EQ(LogitsOf(model.get(), chunk), expected);
      EXPECT_EQ(LogitsOf(model.get(), chunk), expected) << "with what is there by now";
      const StreamStats stats = *model->stream_stats();
      EXPECT_GT(stats.store.missed, 0u);
      EXPECT_EQ(stats.disk.method, "fake");
      EXPECT_EQ(stats.store.slots, slots);
    }
  }
  const auto model = subject.Streamed(half);
  EXPECT_EQ(LogitsOf(model.get(), 7), expected) << "from the real disk";
}

INSTANTIATE_TEST_SUITE_P(
    All, StreamedFamily,
    testing::Values(Hf("mixtral"), Hf("olmoe"), Hf("qwen2_moe"), Hf("qwen3_moe"), Hf("granitemoe"),
                    Hf("glm4_moe"), Hf("minimax_m2"), Hf("ernie4_5_moe"), Cmf("moe_qwen2_q8.cmf"),
                    Cmf("moe_qwen2_q8_expertmask.cmf"), Cmf("moe_qwen2_q8_moedefrag.cmf"),
                    Cmf("moe_qwen3_q4tp.cmf"), Cmf("moe_qwen3_q4tp_expertmask.cmf"),
                    Cmf("moe_qwen3_py_vbit_joint.cmf")),
    [](const auto& test) {
      std::string name = test.param.substr(test.param.find_last_of('/') + 1);
      std::replace(name.begin(), name.end(), '.', '_');
      return name;
    });

// In a folder of its own.
class Scratch {
 public:
  Scratch() {
    path_ = (std::filesystem::temp_directory_path() / "moewe_streaming_test.XXXXXX").string();
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no folder");
  }
  ~Scratch() { std::filesystem::remove_all(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::string At(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

void ExpectTheSameBits(const std::string& path, std::initializer_list<uint64_t> slots) {
  Subject subject(path);
  const std::vector<float> expected = LogitsOf(subject.Resident().get(), 512);
  for (const uint64_t count : slots) {
    for (const size_t chunk : {512, 1}) {
      SCOPED_TRACE(std::to_string(count) + " slots, chunk " + std::to_string(chunk));
      const auto model = subject.StreamedFrom(subject.Copy(), count, {.seed = count});
      EXPECT_EQ(LogitsOf(model.get(), chunk), expected);
      EXPECT_GT(model->stream_stats()->store.missed, 0u);
    }
  }
}

// One expert a layer, and as many as sixteen of 24 for a token.
TEST(Streaming, OneExpertAndSixteenAtOnce) {
  for (const auto& [experts, top_k] : {std::pair<size_t, size_t>{1, 1}, {24, 16}}) {
    const Scratch scratch;
    TinyModel tiny;
    tiny.layers = 3;
    tiny.experts = experts;
    tiny.top_k = top_k;
    std::ofstream(scratch.At("config.json")) << tiny.Config();
    std::ofstream(scratch.At("model.safetensors"), std::ios::binary) << tiny.Weights();
    ThreadPool threads(1);
    const ModelOutline outline(formats::OpenCheckpoint(scratch.At("")), {}, &threads);
    EXPECT_EQ(outline.stored().count, 3 * experts);
    EXPECT_EQ(outline.stored().least_slots, top_k);
    ExpectTheSameBits(scratch.At(""), {1, 3, top_k, 3 * experts - 1});
  }
}

// A layer's experts are asked for once a visit.
TEST(Streaming, ALoopedModel) {
  const Scratch scratch;
  const std::string path = scratch.At("looped.cmf");
  const auto file = formats::OpenCheckpoint(Cmf("moe_qwen3_q4tp.cmf"));
  formats::CmfPlan plan;
  plan.header = file->config();
  plan.header["arch"]["num_loops"] = 2;
  for (const formats::TensorView& tensor : file->tensors()) {
    plan.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes.size()});
  }
  const auto writer = formats::CmfWriter::Create(std::move(plan), path);
  for (size_t i = 0; i < file->tensors().size(); ++i) writer->Write(i, file->tensors()[i].bytes);
  writer->Finish();
  Subject once(Cmf("moe_qwen3_q4tp.cmf"));
  Subject twice(path);
  EXPECT_EQ(twice.Resident()->config().num_visits(), 2 * once.Resident()->config().num_visits());
  EXPECT_NE(LogitsOf(twice.Resident().get(), 8), LogitsOf(once.Resident().get(), 8));
  ExpectTheSameBits(path, {1, twice.stored().least_slots, twice.stored().count / 2});
}

TEST(Streaming, EveryMaskAndActivationsMode) {
  for (const char* task : {"none", ""}) {
    Subject subject(Cmf("moe_qwen3_q4tp_expertmask.cmf"), kernels::Activations::kF32);
    subject.options().task = task;
    const auto resident = subject.Resident();
    const auto model = subject.Streamed(subject.stored().least_slots);
    EXPECT_EQ(LogitsOf(model.get(), 5), LogitsOf(resident.get(), 5));
  }
}

TEST(Streaming, ASlowDiskChangesNothing) {
  Subject subject(paths::DemoModel());
  const std::vector<float> expected = LogitsOf(subject.Resident().get(), 512, 40, 4);
  const FakeDiskOptions slow{.seed = 3,
                             .depth = 3,
                             .least = std::chrono::microseconds(50),
                             .most = std::chrono::microseconds(400)};
  const auto model = subject.StreamedFrom(subject.Copy(), 40, slow);
  EXPECT_EQ(LogitsOf(model.get(), 512, 40, 4), expected);
  EXPECT_EQ(LogitsOf(model.get(), 1, 40, 4), expected);
  const experts::StoreStats stats = model->stream_stats()->store;
  EXPECT_GT(stats.resident, 0u);
  EXPECT_GT(stats.prefetch_reads, 0u) << "nobody looked ahead";
  EXPECT_GT(stats.wait_seconds, 0.0);
}

// A chunk reads each expert that it needs at most once, however few slots there are.
TEST(Streaming, AChunkReadsAnExpertOnce) {
  Subject subject(paths::DemoModel());
  const auto disk = subject.Copy();
  const auto model = subject.StreamedFrom(disk, subject.stored().least_slots);
  const size_t before = disk->started().size();
  LogitsOf(model.get(), 512, 200, 0);
  const experts::StoreStats stats = model->stream_stats()->store;
  EXPECT_GT(stats.missed, 0u);
  EXPECT_LE(stats.missed, subject.stored().count);
  EXPECT_LE(disk->started().size() - before, 3 * subject.stored().count);
}

TEST(Streaming, NothingOfTheFilesIsLookedAtBeforeTheModelIsLoaded) {
  ThreadPool threads(1);
  const Checkpoint file = formats::OpenCheckpoint(Cmf("moe_qwen3_py_vbit_joint.cmf"));
  const ModelOutline outline(file, {}, &threads);
  EXPECT_GT(outline.stored().count, 0u);
  for (const LayerWeights& layer : outline.weights().layers) {
    EXPECT_EQ(layer.attention_norm, std::vector<float>(outline.config().hidden_size));
    for (const kernels::FfnMatrices& expert : layer.moe.experts) {
      EXPECT_EQ(expert.gate.row_starts, nullptr);
    }
  }
}

TEST(Streaming, AReadThatFailsOnceIsRepeated) {
  Subject subject(Cmf("moe_qwen2_q8.cmf"));
  const std::vector<float> expected = LogitsOf(subject.Resident().get(), 8);
  const auto disk = subject.Copy();
  const auto model = subject.StreamedFrom(disk, subject.stored().least_slots);
  for (const auto& layer : subject.stored().layers) {
    if (!layer.empty()) disk->FailReads(layer[0][0].file, layer[0][0].offset, 1);
  }
  EXPECT_EQ(LogitsOf(model.get(), 8), expected);
  EXPECT_GT(model->stream_stats()->store.retries, 0u);
}

TEST(Streaming, AReadThatFailsTwiceEndsTheStepAlone) {
  Subject subject(Cmf("moe_qwen2_q8.cmf"));
  const std::vector<float> expected = LogitsOf(subject.Resident().get(), 8);
  const auto disk = subject.Copy();
  const auto model = subject.StreamedFrom(disk, subject.stored().least_slots);
  for (const auto& expert : subject.stored().layers[1]) {
    disk->FailReads(expert[2].file, expert[2].offset, -1);
  }
  EXPECT_EQ(CodeOf([&] { LogitsOf(model.get(), 8); }), ErrorCode::kIo);
  const std::string message = MessageOf([&] { LogitsOf(model.get(), 1); });
  EXPECT_NE(message.find("layer 1"), std::string::npos) << message;
  EXPECT_NE(message.find("moe_qwen2_q8.cmf"), std::string::npos) << message;
  disk->ClearFaults();
  EXPECT_EQ(LogitsOf(model.get(), 8), expected);
}

TEST(Streaming, AFileThatBecomesShorterIsAnErrorOfItsReaders) {
  Subject subject(Cmf("moe_qwen2_q8.cmf"));
  const auto disk = subject.Copy();
  const auto model = subject.StreamedFrom(disk, subject.stored().least_slots);
  disk->Resize(0, 8192);
  EXPECT_EQ(CodeOf([&] { LogitsOf(model.get(), 8); }), ErrorCode::kIo);
  // And of who loads from it.
  EXPECT_EQ(CodeOf([&] { subject.StreamedFrom(disk, subject.stored().count); }), ErrorCode::kIo);
}

// What is in flight when the trunk turns out to be unreadable still has memory to come to.
TEST(Streaming, AnUnreadableTrunkWaitsForItsOtherReads) {
  Subject subject(paths::DemoModel());
  const auto file = formats::OpenCheckpoint(paths::DemoModel());
  const formats::TensorView* tensor = file->Find("model.layers.0.self_attn.q_proj.weight");
  ASSERT_NE(tensor, nullptr);
  const auto disk = subject.Copy();
  disk->FailReads(tensor->file_index, tensor->file_offset, -1);
  const FakeDiskOptions slow{.seed = 3,
                             .depth = 8,
                             .least = std::chrono::milliseconds(1),
                             .most = std::chrono::milliseconds(5)};
  EXPECT_EQ(CodeOf([&] { subject.StreamedFrom(disk, subject.stored().count, slow); }),
            ErrorCode::kIo);
}

TEST(Streaming, WrongBytesOfAnExpertAreNamed) {
  Subject subject(Cmf("moe_qwen2_q8.cmf"));
  const std::vector<float> expected = LogitsOf(subject.Resident().get(), 8);
  const auto good = subject.Copy();
  const auto disk = subject.Copy();
  for (const auto& expert : subject.stored().layers[1]) {
    disk->Overwrite(0, expert[1].offset + 5, {0xde, 0xad, 0xbe, 0xef});
  }
  const auto model = subject.StreamedFrom(disk, subject.stored().count);
  EXPECT_EQ(CodeOf([&] { LogitsOf(model.get(), 8); }), ErrorCode::kHashMismatch);
  const std::string message = MessageOf([&] { LogitsOf(model.get(), 8); });
  EXPECT_NE(message.find("model.layers.1.mlp.experts."), std::string::npos) << message;
  EXPECT_NE(message.find("up_proj"), std::string::npos) << message;
  // Nobody asked for hashes: the bytes are what they are.
  subject.options().verify = Verify::kNone;
  EXPECT_NO_THROW(LogitsOf(subject.StreamedFrom(disk, subject.stored().count).get(), 8));
  // All of them: found before the first token.
  subject.options().verify = Verify::kFull;
  EXPECT_EQ(CodeOf([&] { subject.StreamedFrom(disk, subject.stored().count); }),
            ErrorCode::kHashMismatch);
  const auto whole = subject.StreamedFrom(good, subject.stored().least_slots);
  EXPECT_EQ(LogitsOf(whole.get(), 8), expected);
}

TEST(Streaming, WrongBytesOfTheTrunkAreFoundInItsCopy) {
  Subject subject(Cmf("moe_qwen2_q8.cmf"));
  const auto file = formats::OpenCheckpoint(Cmf("moe_qwen2_q8.cmf"));
  const auto disk = subject.Copy();
  disk->Overwrite(0, file->Find("model.layers.0.self_attn.q_proj.weight")->file_offset + 9, {0x55});
  const std::string message =
      MessageOf([&] { subject.StreamedFrom(disk, subject.stored().least_slots); });
  EXPECT_NE(message.find("model.layers.0.self_attn.q_proj.weight"), std::string::npos) << message;
}

TEST(Streaming, WhatWasUsedOftenIsThereAtTheNextStart) {
  Subject subject(Cmf("moe_qwen2_q8.cmf"));
  const std::vector<float> expected = LogitsOf(subject.Resident().get(), 8);
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("moewe_streaming." + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const std::string file = (folder / "model.freq").string();
  const auto run = [&] {
    const auto model = subject.StreamedFrom(subject.Copy(), subject.stored().count, {}, file);
    EXPECT_EQ(LogitsOf(model.get(), 8), expected);
    return model->stream_stats()->store;
  };
  EXPECT_EQ(run().prefetched, 0u);
  ASSERT_TRUE(std::filesystem::exists(file));
  EXPECT_GT(run().prefetched, 0u);
  // Damaged, it is a hint less.
  std::filesystem::resize_file(file, 20);
  EXPECT_EQ(run().prefetched, 0u);
  EXPECT_GT(run().prefetched, 0u);
  std::filesystem::remove_all(folder);
}

TEST(Streaming, ExpertsThatAreOnlyVerifiedAreNotUsed) {
  Subject subject(Cmf("moe_qwen2_q8.cmf"));
  subject.options().verify = Verify::kFull;
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("moewe_verified." + std::to_string(getpid()));
  std::filesystem::remove(file);
  subject.StreamedFrom(subject.Copy(), subject.stored().least_slots, {}, file.string());
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(Streaming, AnArenaWithoutASlotIsRefused) {
  Subject subject(Cmf("moe_qwen2_q8.cmf"));
  EXPECT_EQ(CodeOf([&] { subject.Streamed(0); }), ErrorCode::kUsage);
}

}  // namespace
}  // namespace moewe::model
