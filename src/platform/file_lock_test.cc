// One editor at a time.
#include "platform/file_lock.h"

#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "moewe/error.h"

namespace moewe {
namespace {

namespace fs = std::filesystem;

class FileLockTest : public testing::Test {
 protected:
  FileLockTest()
      : folder_(fs::temp_directory_path() / ("moewe_file_lock_test." + std::to_string(getpid()))) {
    fs::create_directories(folder_);
    std::ofstream(path_) << "0";
  }
  ~FileLockTest() override { fs::remove_all(folder_); }

  fs::path folder_;
  std::string path_ = (folder_ / "file").string();
};

// Each of several processes replaces the file by one that counts one more.
TEST_F(FileLockTest, NoUpdateIsLostThoughTheFileIsReplaced) {
  constexpr int kProcesses = 4;
  constexpr int kRounds = 25;
  for (int process = 0; process < kProcesses; ++process) {
    if (fork() != 0) continue;
    for (int i = 0; i < kRounds; ++i) {
      const FileLock lock(path_, FileLock::Access::kRead, [] {});
      int count = -1;
      std::ifstream(path_) >> count;
      const std::string next = path_ + "." + std::to_string(process);
      std::ofstream(next) << count + 1;
      fs::rename(next, path_);
    }
    _exit(0);
  }
  for (int process = 0; process < kProcesses; ++process) {
    int status = 0;
    wait(&status);
    EXPECT_EQ(status, 0);
  }
  int count = -1;
  std::ifstream(path_) >> count;
  EXPECT_EQ(count, kProcesses * kRounds);
}

TEST_F(FileLockTest, SaysThatItWaits) {
  int to_child[2];
  int to_parent[2];
  ASSERT_EQ(pipe(to_child), 0);
  ASSERT_EQ(pipe(to_parent), 0);
  const pid_t child = fork();
  if (child == 0) {
    // Holds the lock until the parent says that it has begun to wait.
    const FileLock lock(path_, FileLock::Access::kWrite, [] {});
    char byte = 0;
    _exit(write(to_parent[1], "l", 1) == 1 && read(to_child[0], &byte, 1) >= 0 ? 0 : 1);
  }
  char byte = 0;
  ASSERT_EQ(read(to_parent[0], &byte, 1), 1);
  int told = 0;
  const FileLock lock(path_, FileLock::Access::kWrite, [&] {
    ++told;
    ASSERT_EQ(write(to_child[1], "g", 1), 1);
  });
  EXPECT_EQ(told, 1);
  int status = 0;
  waitpid(child, &status, 0);
  for (const int fd : {to_child[0], to_child[1], to_parent[0], to_parent[1]}) close(fd);
  lock.CheckStillNamed();
}

TEST_F(FileLockTest, NoticesThatTheFileWasReplaced) {
  const FileLock lock(path_, FileLock::Access::kRead, [] {});
  lock.CheckStillNamed();
  std::ofstream(path_ + ".new") << "x";
  fs::rename(path_ + ".new", path_);
  EXPECT_THROW(lock.CheckStillNamed(), Error);
}

TEST_F(FileLockTest, NeedsARegularFile) {
  const auto code = [](const std::string& path) {
    try {
      const FileLock lock(path, FileLock::Access::kRead, [] {});
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::kInternal;
  };
  EXPECT_EQ(code((folder_ / "no").string()), ErrorCode::kNotFound);
  EXPECT_EQ(code(folder_.string()), ErrorCode::kIo);
}

}  // namespace
}  // namespace moewe
