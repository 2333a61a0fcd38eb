// What a conversion leaves when it dies or a write fails, at every file operation that it makes.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <vector>

#include "convert/convert.h"
#include "golden.h"
#include "moewe/error.h"
#include "platform/file_io.h"

namespace moewe::convert {
namespace {

namespace fs = std::filesystem;

class FaultTest : public testing::Test {
 protected:
  FaultTest()
      : folder_(fs::temp_directory_path() / ("moewe_fault_test." + std::to_string(getpid()))) {
    fs::create_directories(folder_);
    Run(folder_ / "whole.cmf", false);
    whole_ = golden::ReadBytes(folder_ / "whole.cmf");
  }
  ~FaultTest() override {
    SetFileFaultForTest({});
    fs::remove_all(folder_);
  }

  // f32 to q8_row, without threads of the pool: it also runs in forked processes.
  static void Run(const fs::path& dst, bool resume) {
    const auto source =
        formats::OpenCheckpoint(golden::Path("cmf/files/masks_llama_f32.cmf").string());
    ConvertOptions options;
    options.quant = DType::kQ8Row;
    options.resume = resume;
    ThreadPool pool(1);
    ConvertToCmf(*source, dst.string(), options, pool);
  }

  void PutOldFile() const { std::ofstream(dst_) << "old"; }
  // Nothing but the old file or the complete new one under the final name.
  bool IsOld() const { return golden::ReadBytes(dst_) == std::vector<uint8_t>{'o', 'l', 'd'}; }
  void ExpectOldOrWhole(int operation) const {
    EXPECT_TRUE(IsOld() || golden::ReadBytes(dst_) == whole_) << "operation " << operation;
  }

  int CountOperations() const {
    std::atomic<int> count{0};
    SetFileFaultForTest([&](FileOperation, size_t*) {
      ++count;
      return 0;
    });
    Run(folder_ / "counted.cmf", false);
    SetFileFaultForTest({});
    return count;
  }

  fs::path folder_;
  fs::path dst_ = folder_ / "out.cmf";
  std::vector<uint8_t> whole_;
};

TEST_F(FaultTest, KilledAtAnyOperationItResumesToTheSameBytes) {
  const int operations = CountOperations();
  ASSERT_GT(operations, 40);
  int old = 0;
  for (int last = 0; last < operations; ++last) {
    PutOldFile();
    const pid_t child = fork();
    if (child == 0) {
      // A write that got half way, then the end.
      std::atomic<int> count{0};
      SetFileFaultForTest([&](FileOperation, size_t* bytes) {
        const int now = count++;
        if (now == last) *bytes = (*bytes + 1) / 2;
        if (now > last) raise(SIGKILL);
        return 0;
      });
      Run(dst_, false);
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) || last + 1 == operations);
    ExpectOldOrWhole(last);
    old += IsOld() ? 1 : 0;
    Run(dst_, true);
    ASSERT_EQ(golden::ReadBytes(dst_), whole_) << "operation " << last;
    EXPECT_FALSE(fs::exists(dst_.string() + ".partial"));
  }
  EXPECT_GE(old, operations - 3);
}

TEST_F(FaultTest, AFailingOperationIsItsErrorAndLosesNothing) {
  const int operations = CountOperations();
  for (const int number : {EIO, ENOSPC}) {
    for (int failing = 0; failing < operations; ++failing) {
      PutOldFile();
      std::atomic<int> count{0};
      SetFileFaultForTest([&](FileOperation, size_t*) { return count++ == failing ? number : 0; });
      try {
        Run(dst_, false);
        ADD_FAILURE() << "operation " << failing << " failed in silence";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), number == EIO ? ErrorCode::kIo : ErrorCode::kNoSpace);
      }
      SetFileFaultForTest({});
      ExpectOldOrWhole(failing);
      Run(dst_, true);
      ASSERT_EQ(golden::ReadBytes(dst_), whole_) << "operation " << failing;
    }
  }
}

}  // namespace
}  // namespace moewe::convert
