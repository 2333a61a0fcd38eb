// Space, locks, and what becomes of failing writes.
#include "platform/file_io.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "moewe/error.h"

namespace moewe {
namespace {

namespace fs = std::filesystem;

class FileIoTest : public testing::Test {
 protected:
  FileIoTest()
      : folder_(fs::temp_directory_path() / ("moewe_file_io_test." + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~FileIoTest() override {
    SetFileFaultForTest({});
    fs::remove_all(folder_);
  }

  fs::path folder_;
  std::string path_ = (folder_ / "file").string();
  std::vector<uint8_t> content_ = std::vector<uint8_t>(5000, 7);
};

ErrorCode CodeThrown(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::kInternal;
}

TEST_F(FileIoTest, ShortWritesAreContinued) {
  const FileDescriptor file = FileDescriptor::OpenForWriting(path_, true);
  int calls = 0;
  SetFileFaultForTest([&](FileOperation, size_t* bytes) {
    *bytes = std::min<size_t>(*bytes, 1000);
    return ++calls % 3 == 0 ? EINTR : 0;
  });
  WriteAt(file.get(), 100, content_, path_);
  WriteAll(file.get(), Bytes(content_).first(100), path_);
  EXPECT_GE(calls, 6);
  EXPECT_EQ(fs::file_size(path_), 5100u);
  EXPECT_EQ(ReadWholeFile(path_, 10000), std::vector<uint8_t>(5100, 7));
}

TEST_F(FileIoTest, FailuresHaveTheirCodes) {
  const FileDescriptor file = FileDescriptor::OpenForWriting(path_, true);
  const auto code = [&](FileOperation failing, int number, const std::function<void()>& action) {
    SetFileFaultForTest(
        [=](FileOperation operation, size_t*) { return operation == failing ? number : 0; });
    return CodeThrown(action);
  };
  const auto write = [&] { WriteAt(file.get(), 0, content_, path_); };
  EXPECT_EQ(code(FileOperation::kWrite, EIO, write), ErrorCode::kIo);
  EXPECT_EQ(code(FileOperation::kWrite, ENOSPC, write), ErrorCode::kNoSpace);
  EXPECT_EQ(code(FileOperation::kWrite, EDQUOT, write), ErrorCode::kNoSpace);
  EXPECT_EQ(code(FileOperation::kSync, EIO, [&] { SyncFile(file.get(), path_); }), ErrorCode::kIo);
  EXPECT_EQ(code(FileOperation::kResize, EIO, [&] { ResizeFile(file.get(), 9, path_); }),
            ErrorCode::kIo);
  EXPECT_EQ(code(FileOperation::kReserve, ENOSPC, [&] { ReserveSpace(file.get(), 9, path_); }),
            ErrorCode::kNoSpace);
  EXPECT_EQ(code(FileOperation::kRename, EIO, [&] { RenameAndSync(path_, path_ + "2"); }),
            ErrorCode::kIo);
  SetFileFaultForTest([](FileOperation, size_t*) { return EOPNOTSUPP; });
  EXPECT_FALSE(ReserveSpace(file.get(), 9, path_));
}

TEST_F(FileIoTest, SpaceIsCheckedBeforehand) {
  const FileDescriptor file = FileDescriptor::OpenForWriting(path_, true);
  CheckSpace(file.get(), 4096, path_);
  try {
    CheckSpace(file.get(), uint64_t{1} << 60, path_);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNoSpace);
    EXPECT_NE(error.message().find("1152921504606846976 bytes"), std::string::npos);
  }
}

TEST_F(FileIoTest, FileSizeLimitIsAnError) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  IgnoreFileSizeSignal();
  const rlimit limit = {.rlim_cur = 3000, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const FileDescriptor file = FileDescriptor::OpenForWriting(path_, true);
  const ErrorCode checked = CodeThrown([&] { CheckSpace(file.get(), 5000, path_); });
  const ErrorCode written = CodeThrown([&] { WriteAt(file.get(), 0, content_, path_); });
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(checked, ErrorCode::kNoSpace);
  EXPECT_EQ(written, ErrorCode::kNoSpace);
}

TEST_F(FileIoTest, OneWriterAtATime) {
  std::optional<FileDescriptor> first = OpenLocked(path_);
  ASSERT_TRUE(first);
  EXPECT_FALSE(OpenLocked(path_));
  // The name is another file's now: that one is free.
  fs::rename(path_, path_ + ".done");
  std::optional<FileDescriptor> second = OpenLocked(path_);
  EXPECT_TRUE(second);
  EXPECT_FALSE(OpenLocked(path_));
  second->Close();
  EXPECT_TRUE(OpenLocked(path_));
}

}  // namespace
}  // namespace moewe
