// What is left of a vault when making or upgrading it fails at any file operation.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "convert/to_smoe.h"
#include "convert/vault_upgrade.h"
#include "formats/smoe/smoe_vault.h"
#include "golden.h"
#include "moewe/error.h"
#include "platform/file_io.h"

namespace moewe::convert {
namespace {

namespace fs = std::filesystem;

class SmoeFaultTest : public testing::Test {
 protected:
  SmoeFaultTest()
      : folder_(fs::temp_directory_path() / ("moewe_smoe_fault." + std::to_string(getpid()))) {
    fs::create_directories(folder_ / "whole");
    fs::create_directories(folder_ / "out");
    Make("qwen3moe-odd", folder_ / "whole/m.smoe", false);
  }
  ~SmoeFaultTest() override {
    SetFileFaultForTest({});
    fs::remove_all(folder_);
  }

  static std::string Checkpoint(const std::string& model) {
    return golden::Path("smoe/models/" + model + "/checkpoint/" + model).string();
  }
  static void Make(const std::string& model, const fs::path& dst, bool resume) {
    const auto source = formats::OpenCheckpoint(Checkpoint(model));
    SmoeOptions options;
    options.resume = resume;
    ThreadPool pool(1);
    ConvertToSmoe(*source, dst.string(), options, pool);
  }

  // Operation `last` and all after it fail.
  static void FailFrom(int last) {
    SetFileFaultForTest([last, count = 0](FileOperation, size_t* bytes) mutable {
      if (count++ < last) return 0;
      if (bytes != nullptr) *bytes = *bytes / 2;
      return EIO;
    });
  }

  std::vector<uint8_t> Whole(const std::string& name) const {
    return golden::ReadBytes(folder_ / "whole" / name);
  }

  fs::path folder_;
};

TEST_F(SmoeFaultTest, AFailedConversionIsContinuedToTheSameBytes) {
  const fs::path dst = folder_ / "out/m.smoe";
  int failures = 0;
  for (int last = 0;; ++last) {
    ASSERT_LT(last, 1000);
    fs::remove_all(folder_ / "out");
    fs::create_directories(folder_ / "out");
    std::ofstream(dst) << "old";
    FailFrom(last);
    bool failed = false;
    try {
      Make("qwen3moe-odd", dst, false);
    } catch (const Error& error) {
      failed = true;
      EXPECT_EQ(error.code(), ErrorCode::kIo);
    }
    SetFileFaultForTest({});
    if (!failed) break;
    ++failures;
    const std::vector<uint8_t> left = golden::ReadBytes(dst);
    EXPECT_TRUE(left == Whole("m.smoe") || left.size() == 3) << "operation " << last;
    Make("qwen3moe-odd", dst, true);
    EXPECT_EQ(golden::ReadBytes(dst), Whole("m.smoe")) << "operation " << last;
    for (const char* name : {"m.scout.safetensors", "m.tokenizer.json", "m.chat.json"}) {
      EXPECT_EQ(golden::ReadBytes(folder_ / "out" / name), Whole(name)) << name;
    }
    EXPECT_FALSE(fs::exists(dst.string() + ".partial"));
  }
  EXPECT_GT(failures, 30);
}

// At every point the file is the v1 vault or the v2 vault, and running again completes it.
TEST_F(SmoeFaultTest, AFailedUpgradeLeavesAWholeVault) {
  Make("qwen3moe-hd128", folder_ / "out/m.smoe", false);
  const std::string path = (folder_ / "out/m.smoe").string();
  const std::vector<uint8_t> v2 = golden::ReadBytes(path);
  std::vector<uint8_t> v1 = v2;
  uint32_t block = 0;
  std::memcpy(&block, v2.data() + 60, sizeof(block));
  v1[8] = 1;
  std::fill_n(v1.begin() + 60, 4, uint8_t{0});
  std::fill_n(v1.begin() + block, 128, uint8_t{0});
  const auto put = [&] {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(v1.data()), static_cast<std::streamsize>(v1.size()));
  };
  const UpgradeOptions options{.config = Checkpoint("qwen3moe-hd128")};
  int failures = 0;
  for (int last = 0;; ++last) {
    ASSERT_LT(last, 100);
    put();
    FailFrom(last);
    bool failed = false;
    try {
      UpgradeVault(path, options);
    } catch (const Error&) {
      failed = true;
    }
    SetFileFaultForTest({});
    if (!failed) break;
    ++failures;
    const auto left = formats::SmoeVault::Open(path);
    EXPECT_TRUE(left->tables().header.version == 1 || golden::ReadBytes(path) == v2);
    if (left->tables().header.version == 1) UpgradeVault(path, options);
    EXPECT_EQ(golden::ReadBytes(path), v2) << "operation " << last;
  }
  EXPECT_GE(failures, 5);
  EXPECT_EQ(golden::ReadBytes(path), v2);
}

}  // namespace
}  // namespace moewe::convert
