// What is left of a vault when making or upgrading it fails at any file operation.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
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

using Files = std::map<std::string, std::vector<uint8_t>>;

class SmoeFaultTest : public testing::Test {
 protected:
  SmoeFaultTest()
      : folder_(fs::temp_directory_path() / ("moewe_smoe_fault." + std::to_string(getpid()))) {
    fs::create_directories(folder_ / "whole");
    fs::create_directories(folder_ / "out");
    Make("qwen3moe-odd", folder_ / "whole/m.smoe", false);
    whole_ = FilesIn("whole");
  }
  ~SmoeFaultTest() override {
    SetFileFaultForTest({});
    fs::remove_all(folder_);
  }

  static std::string Checkpoint(const std::string& model) {
    return golden::Path("smoe/models/" + model + "/checkpoint/" + model).string();
  }
  // Without threads of the pool: it also runs in forked processes.
  static void Make(const std::string& model, const fs::path& dst, bool resume) {
    const auto source = formats::OpenCheckpoint(Checkpoint(model));
    SmoeOptions options;
    options.resume = resume;
    ThreadPool pool(1);
    ConvertToSmoe(*source, dst.string(), options, pool);
  }

  Files FilesIn(const std::string& name) const {
    Files files;
    for (const auto& entry : fs::directory_iterator(folder_ / name)) {
      files[entry.path().filename().string()] = golden::ReadBytes(entry.path());
    }
    return files;
  }

  // An earlier vault of this name with its companions.
  void PutOld() {
    fs::remove_all(folder_ / "out");
    fs::create_directories(folder_ / "out");
    old_.clear();
    for (const auto& [name, bytes] : whole_) {
      std::ofstream(folder_ / "out" / name) << "old " << name;
      const std::string text = "old " + name;
      old_[name] = {text.begin(), text.end()};
    }
  }

  // The vault and all that belongs to it are old, or all are new, or there is no vault.
  void ExpectTogether(bool may_be_absent) const {
    Files files = FilesIn("out");
    for (const auto& [name, bytes] : files) {
      if (!name.ends_with(".partial") || bytes.empty()) continue;
      EXPECT_TRUE(files.contains(name + ".journal")) << name;
    }
    std::erase_if(files, [&](const auto& file) { return !whole_.contains(file.first); });
    if (may_be_absent && !files.contains("m.smoe")) return;
    EXPECT_TRUE(files == old_ || files == whole_);
  }

  // And from there to the end: the same bytes, nothing else.
  void ExpectResumes() const {
    Make("qwen3moe-odd", folder_ / "out/m.smoe", true);
    Files files = FilesIn("out");
    // A file that is complete has a name of its own only between two system calls.
    std::erase_if(files,
                  [](const auto& file) { return file.first.find(".tmp.") != std::string::npos; });
    EXPECT_EQ(files, whole_);
  }

  int CountOperations() {
    PutOld();
    int count = 0;
    SetFileFaultForTest([&](FileOperation, size_t*) {
      ++count;
      return 0;
    });
    Make("qwen3moe-odd", folder_ / "out/m.smoe", false);
    SetFileFaultForTest({});
    return count;
  }

  // Operation `last` and all after it fail.
  static void FailFrom(int last) {
    SetFileFaultForTest([last, count = 0](FileOperation, size_t* bytes) mutable {
      if (count++ < last) return 0;
      if (bytes != nullptr) *bytes = *bytes / 2;
      return EIO;
    });
  }

  fs::path folder_;
  Files whole_;
  Files old_;
};

TEST_F(SmoeFaultTest, KilledAtAnyOperationItResumesToTheSameBytes) {
  const int operations = CountOperations();
  ASSERT_GT(operations, 40);
  for (int last = 0; last < operations; ++last) {
    SCOPED_TRACE("operation " + std::to_string(last));
    PutOld();
    const pid_t child = fork();
    if (child == 0) {
      // A write that got half way, then the end.
      int count = 0;
      SetFileFaultForTest([&](FileOperation, size_t* bytes) {
        const int now = count++;
        if (now == last) *bytes = (*bytes + 1) / 2;
        if (now > last) raise(SIGKILL);
        return 0;
      });
      Make("qwen3moe-odd", folder_ / "out/m.smoe", false);
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) || last + 1 == operations);
    ExpectTogether(/*may_be_absent=*/true);
    ExpectResumes();
    if (HasFailure()) return;
  }
}

TEST_F(SmoeFaultTest, AFailingOperationIsItsErrorAndLosesNothing) {
  const int operations = CountOperations();
  for (int failing = 0; failing < operations; ++failing) {
    const int number = failing % 2 == 0 ? EIO : ENOSPC;
    SCOPED_TRACE("operation " + std::to_string(failing));
    PutOld();
    int count = 0;
    SetFileFaultForTest([&](FileOperation, size_t*) { return count++ == failing ? number : 0; });
    try {
      Make("qwen3moe-odd", folder_ / "out/m.smoe", false);
      ADD_FAILURE() << "failed in silence";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), number == EIO ? ErrorCode::kIo : ErrorCode::kNoSpace);
      EXPECT_FALSE(error.where().file.empty());
    }
    SetFileFaultForTest({});
    ExpectTogether(/*may_be_absent=*/false);
    ExpectResumes();
    if (HasFailure()) return;
  }
}

// A disk that takes a few bytes at a time.
TEST_F(SmoeFaultTest, WritesAreShort) {
  PutOld();
  SetFileFaultForTest([](FileOperation, size_t* bytes) {
    *bytes = std::min<size_t>(*bytes, 997);
    return 0;
  });
  Make("qwen3moe-odd", folder_ / "out/m.smoe", false);
  EXPECT_EQ(FilesIn("out"), whole_);
}

// Experts are taken over only from the same conversion, and only where their bytes are good.
TEST_F(SmoeFaultTest, WhatAnEarlierRunLeftIsChecked) {
  const fs::path dst = folder_ / "out/m.smoe";
  const auto stop = [&] {
    PutOld();
    const auto source = formats::OpenCheckpoint(Checkpoint("qwen3moe-odd"));
    SmoeOptions options;
    options.progress = [](const ConvertProgress& progress) {
      if (progress.tensors > 9) throw Error(ErrorCode::kInterrupted, "enough", {});
    };
    ThreadPool pool(1);
    EXPECT_THROW(ConvertToSmoe(*source, dst.string(), options, pool), Error);
    ASSERT_TRUE(fs::exists(dst.string() + ".partial"));
    ExpectTogether(/*may_be_absent=*/false);
  };
  const auto resume = [&](const std::string& model) {
    const auto source = formats::OpenCheckpoint(Checkpoint(model));
    SmoeOptions options;
    options.resume = true;
    std::string notes;
    options.note = [&](const std::string& line) { notes += line + "\n"; };
    ThreadPool pool(1);
    ConvertToSmoe(*source, dst.string(), options, pool);
    return notes;
  };
  stop();
  EXPECT_NE(resume("qwen3moe-odd").find("resuming:"), std::string::npos);
  EXPECT_EQ(FilesIn("out"), whole_);
  stop();  // an expert's bytes change
  {
    std::fstream partial(dst.string() + ".partial", std::ios::in | std::ios::out);
    partial.seekp(16384 + 100);
    partial.put('!').put('?');
  }
  resume("qwen3moe-odd");
  EXPECT_EQ(FilesIn("out"), whole_);
  stop();  // another model's
  resume("deepseek-a");
  EXPECT_NO_THROW(formats::SmoeVault::Open(dst.string()));
  // A file of the same name that is none of ours stays.
  PutOld();
  std::ofstream(dst.string() + ".partial") << "a letter";
  try {
    Make("qwen3moe-odd", dst, true);
    ADD_FAILURE() << "overwrote a file of the user";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
  }
  EXPECT_EQ(golden::ReadBytes(dst.string() + ".partial").size(), 8u);
}

class UpgradeFaultTest : public SmoeFaultTest {
 protected:
  UpgradeFaultTest() {
    Make("qwen3moe-hd128", folder_ / "out/m.smoe", false);
    path_ = (folder_ / "out/m.smoe").string();
    v2_ = golden::ReadBytes(path_);
    v1_ = v2_;
    uint32_t block = 0;
    std::memcpy(&block, v2_.data() + 60, sizeof(block));
    v1_[8] = 1;
    std::fill_n(v1_.begin() + 60, 4, uint8_t{0});
    std::fill_n(v1_.begin() + block, 128, uint8_t{0});
  }

  void Put(const std::vector<uint8_t>& bytes) const {
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }

  std::string path_;
  std::vector<uint8_t> v1_;
  std::vector<uint8_t> v2_;
};

// At every point the file is the v1 vault or the v2 vault, and running again completes it.
TEST_F(UpgradeFaultTest, FailedItLeavesAWholeVault) {
  const UpgradeOptions options{.config = Checkpoint("qwen3moe-hd128")};
  int failures = 0;
  for (int last = 0;; ++last) {
    ASSERT_LT(last, 100);
    Put(v1_);
    FailFrom(last);
    bool failed = false;
    try {
      UpgradeVault(path_, options);
    } catch (const Error&) {
      failed = true;
    }
    SetFileFaultForTest({});
    if (!failed) break;
    ++failures;
    const auto left = formats::SmoeVault::Open(path_);
    EXPECT_TRUE(left->tables().header.version == 1 || golden::ReadBytes(path_) == v2_);
    if (left->tables().header.version == 1) UpgradeVault(path_, options);
    EXPECT_EQ(golden::ReadBytes(path_), v2_) << "operation " << last;
  }
  EXPECT_EQ(failures, 6);  // three writes, each synced
  EXPECT_EQ(golden::ReadBytes(path_), v2_);
}

// The same for a process that dies behind an operation, half of it done; and for a block that is
// written anew beside the one in use.
TEST_F(UpgradeFaultTest, KilledItLeavesAWholeVault) {
  const std::string config = (folder_ / "config.json").string();
  nlohmann::json changed = golden::ReadJson(Checkpoint("qwen3moe-hd128") + "/config.json");
  changed["rope_theta"] = 123456.0;
  std::ofstream(config) << changed.dump();
  for (const bool force : {false, true}) {
    const UpgradeOptions options{.config = force ? config : Checkpoint("qwen3moe-hd128"),
                                 .force = force};
    const float theta = force ? 123456.0f : 1e6f;
    for (int last = 0; last < 6; ++last) {
      SCOPED_TRACE("operation " + std::to_string(last) + (force ? ", forced" : ""));
      Put(force ? v2_ : v1_);
      const pid_t child = fork();
      if (child == 0) {
        int count = 0;
        SetFileFaultForTest([&](FileOperation, size_t* bytes) {
          const int now = count++;
          // What lies in one sector and is this small is written at once or not at all.
          if (now == last && *bytes > 8) *bytes /= 2;
          if (now > last) raise(SIGKILL);
          return 0;
        });
        UpgradeVault(path_, options);
        _exit(0);
      }
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      const auto left = formats::SmoeVault::Open(path_);
      if (left->tables().header.version == 2) {
        const float found = left->tables().arch->rope_theta;
        EXPECT_TRUE(found == theta || (force && found == 1e6f));
      }
      UpgradeOptions again = options;
      again.force = true;
      UpgradeVault(path_, again);
      EXPECT_EQ(formats::SmoeVault::Open(path_)->tables().arch->rope_theta, theta);
    }
  }
}

}  // namespace
}  // namespace moewe::convert
