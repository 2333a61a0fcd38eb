// Files of many tensors and of many bytes: what opening them takes.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <fstream>
#include <string>
#include <vector>

#include "base/bytes_of.h"
#include "base/hash64.h"
#include "formats/cmf/cmf_file.h"
#include "formats/cmf/directory.h"
#include "formats/test_util.h"

namespace moewe::formats {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kSlower = 10.0;
constexpr bool kMeasuresMemory = false;
#else
constexpr double kSlower = 1.0;
constexpr bool kMeasuresMemory = true;
#endif

// Of this process: others that work beside it do not count.
double ProcessorSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

uint64_t ResidentBytes() {
  uint64_t total = 0;
  uint64_t resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

class LargeFileTest : public ScratchTest {
 protected:
  // A file with hashes whose tensors, all of one f32 shape, are a hole. False if the file system
  // cannot hold so large a file.
  bool Make(size_t tensors, const std::vector<uint64_t>& shape, uint64_t bytes_each) {
    std::vector<cmf::DirectoryRecord> records(tensors);
    for (size_t i = 0; i < tensors; ++i) {
      records[i].name = "model.layers." + std::to_string(i / 384) + ".mlp.experts." +
                        std::to_string(i % 384) + ".up_proj.weight";
      records[i].shape = shape;
      records[i].offset = i * bytes_each;
      records[i].nbytes = bytes_each;
      records[i].hash = i + 1;
    }
    const std::string header =
        R"({"version": 2, "quant_type": "F16", "arch": {"arch_name": "llama", "hidden_size": 8,)"
        R"("intermediate_size": 8, "num_layers": 1, "num_attention_heads": 1, "num_kv_heads": 1,)"
        R"("head_dim": 8, "vocab_size": 8, "layer_types": ["FullAttention"],)"
        R"("rms_norm_eps": 1e-6, "max_position_embeddings": 8}})";
    const std::vector<uint8_t> directory = cmf::SerializeDirectory(records);
    // The directory behind the data, where a file that grew has it.
    cmf::Envelope envelope;
    envelope.required_features = cmf::kTensorDir;
    envelope.header = {cmf::kEnvelopeSize, header.size()};
    envelope.data = {cmf::kDataAlignment, tensors * bytes_each};
    envelope.directory = {envelope.data.offset + envelope.data.length, directory.size()};
    envelope.header_hash = HashBytes(BytesOf(header));
    envelope.directory_hash = HashBytes(directory);
    std::ofstream(path_) << "";
    const uint64_t size = envelope.directory.offset + envelope.directory.length;
    if (truncate(path_.c_str(), static_cast<off_t>(size)) != 0) return false;
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    const auto put = [&](uint64_t offset, Bytes bytes) {
      file.seekp(static_cast<std::streamoff>(offset));
      file.write(reinterpret_cast<const char*>(bytes.data()),
                 static_cast<std::streamsize>(bytes.size()));
    };
    put(0, cmf::SerializeEnvelope(envelope));
    put(envelope.header.offset, BytesOf(header));
    put(envelope.directory.offset, directory);
    return true;
  }

  const std::string path_ = At("large.cmf");
};

TEST_F(LargeFileTest, AHundredThousandTensors) {
  ASSERT_TRUE(Make(100'000, {8, 2}, 64));
  const double start = ProcessorSeconds();
  const auto file = CmfFile::Open(path_);
  EXPECT_LT(ProcessorSeconds() - start, 1.5 * kSlower);
  EXPECT_EQ(file->tensors().size(), 100'000u);
  EXPECT_EQ(file->Find("model.layers.260.mlp.experts.159.up_proj.weight")->hash, 100'000u);
}

TEST_F(LargeFileTest, TwoHundredGigabytes) {
  constexpr uint64_t kEach = uint64_t{4} << 30;
  if (!Make(50, {1 << 15, 1 << 15}, kEach)) {
    GTEST_SKIP() << "no file of 200 GiB here, error " << errno;
  }
  struct stat status = {};
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  ASSERT_GT(static_cast<uint64_t>(status.st_size), uint64_t{200'000'000'000});
  const uint64_t before = ResidentBytes();
  const double start = ProcessorSeconds();
  const auto file = CmfFile::Open(path_);
  EXPECT_LT(ProcessorSeconds() - start, 2.0 * kSlower);
  if (kMeasuresMemory) {
    EXPECT_LT(ResidentBytes(), before + (uint64_t{16} << 20));
  }
  const TensorView& last = file->tensors().back();
  EXPECT_EQ(last.bytes.size(), kEach);
  EXPECT_EQ(last.file_offset, cmf::kDataAlignment + 49 * kEach);
  EXPECT_EQ(last.bytes.back(), 0);
}

}  // namespace
}  // namespace moewe::formats
