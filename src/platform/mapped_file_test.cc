#include "platform/mapped_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "platform/atomic_file.h"
#include "platform/disk_reader.h"
#include "platform/file_io.h"
#include "platform/mapped_pages.h"
#include "platform/page_cache.h"

namespace moewe {
namespace {

namespace fs = std::filesystem;

class FileTest : public testing::Test {
 protected:
  FileTest()
      : folder_(fs::temp_directory_path() / ("moewe_file_test." + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~FileTest() override { fs::remove_all(folder_); }

  std::string Make(const std::string& name, size_t size) {
    const fs::path path = folder_ / name;
    std::ofstream(path, std::ios::binary) << std::string(size, 'x');
    return path.string();
  }
  static std::string Read(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  size_t FilesInFolder() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }
  fs::path folder_;
};

ErrorCode CodeOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kInternal;
}

size_t Sum(Bytes bytes) { return std::accumulate(bytes.begin(), bytes.end(), size_t{0}); }

using MappedFileTest = FileTest;
using AtomicFileTest = FileTest;

TEST_F(MappedFileTest, ReadsBytes) {
  const auto file = MappedFile::Open(Make("a", 10000));
  EXPECT_EQ(file->bytes().size(), 10000u);
  EXPECT_EQ(Sum(file->bytes()), 10000u * 'x');
  EXPECT_FALSE(file->damaged());
  EXPECT_NO_THROW(file->Check());
}

TEST_F(MappedFileTest, EmptyMissingAndFolder) {
  EXPECT_TRUE(MappedFile::Open(Make("empty", 0))->bytes().empty());
  EXPECT_EQ(CodeOf([&] { MappedFile::Open((folder_ / "none").string()); }), ErrorCode::kNotFound);
  EXPECT_EQ(CodeOf([&] { MappedFile::Open(folder_.string()); }), ErrorCode::kIo);
}

TEST_F(MappedFileTest, ShrinkingIsAnErrorOfTheReader) {
  const std::string path = Make("shrinks", 64 * 4096);
  const auto file = MappedFile::Open(path);
  const auto other = MappedFile::Open(Make("other", 64 * 4096));
  fs::resize_file(path, 4096 + 10);
  EXPECT_EQ(Sum(file->bytes().first(4096)), 4096u * 'x');
  EXPECT_FALSE(file->damaged());
  EXPECT_EQ(Sum(file->bytes()), (4096u + 10) * 'x');  // lost pages read as zeros
  EXPECT_TRUE(file->damaged());
  EXPECT_EQ(CodeOf([&] { file->Check(); }), ErrorCode::kIo);
  EXPECT_EQ(Sum(other->bytes()), 64u * 4096 * 'x');
  EXPECT_FALSE(other->damaged());
}

TEST_F(MappedFileTest, ManyThreadsMayMeetTheHole) {
  const std::string path = Make("shrinks", 256 * 4096);
  const auto file = MappedFile::Open(path);
  fs::resize_file(path, 0);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { EXPECT_EQ(Sum(file->bytes()), 0u); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(file->damaged());
}

TEST_F(MappedFileTest, DamageDoesNotOutliveTheMapping) {
  const std::string path = Make("shrinks", 2 * 4096);
  {
    const auto file = MappedFile::Open(path);
    fs::resize_file(path, 0);
    EXPECT_EQ(Sum(file->bytes()), 0u);
    EXPECT_TRUE(file->damaged());
  }
  EXPECT_FALSE(MappedFile::Open(Make("new", 4096))->damaged());
}

// Resident pages of this process, in KiB.
size_t ResidentKib() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "RssFile:") {
      size_t kib = 0;
      status >> kib;
      return kib;
    }
  }
  return 0;
}

TEST_F(MappedFileTest, ForgottenPagesLeaveMemoryAndReadAgain) {
  constexpr size_t kSize = 16 << 20;
  const auto file = MappedFile::Open(Make("large", kSize));
  PrefetchPages(file->bytes());
  EXPECT_EQ(Sum(file->bytes()), kSize * 'x');
  const size_t before = ResidentKib();
  ForgetPages(file->bytes().subspan(100, kSize - 200));
  EXPECT_LT(ResidentKib() + 15 * 1024, before);
  EXPECT_EQ(Sum(file->bytes()), kSize * 'x');
  // Memory of another kind keeps its content.
  const std::vector<uint8_t> heap(1 << 20, 7);
  ForgetPages(heap);
  EXPECT_EQ(Sum(heap), size_t{7} << 20);
  ForgetPages({});
}

// Bytes of a file that are in the page cache.
uint64_t Cached(const std::string& path) {
  const FileDescriptor file = FileDescriptor::OpenForReading(path);
  return CachedBytes(file.get(), 0, fs::file_size(path)).value();
}

TEST_F(MappedFileTest, DroppedPagesLeaveThePageCache) {
  constexpr size_t kSize = (4 << 20) + 100;
  const std::string path = Make("large", kSize);
  DropFromPageCache(path);
  if (Cached(path) != 0) return;  // a file system in memory
  const auto file = MappedFile::Open(path);
  EXPECT_EQ(Sum(file->bytes()), kSize * 'x');
  EXPECT_GE(Cached(path), kSize);
  // Parts of pages stay: they may be somebody else's.
  DropPages(file->bytes().subspan(1 << 20, (1 << 20) + 100));
  EXPECT_LE(Cached(path), (3 << 20) + 2 * 4096);
  EXPECT_GE(Cached(path), 3 << 20);
  EXPECT_EQ(Sum(file->bytes()), kSize * 'x');
  DropPages(file->bytes());  // with the last page, which is the file's alone
  EXPECT_EQ(Cached(path), 0u);
  EXPECT_EQ(Sum(file->bytes()), kSize * 'x');
  DropPages({});
}

TEST_F(MappedFileTest, RandomReadsDoNotReadAhead) {
  constexpr size_t kSize = 4 << 20;
  const std::string path = Make("large", kSize);
  DropFromPageCache(path);
  if (Cached(path) != 0) return;  // a file system in memory
  const auto file = MappedFile::Open(path);
  ExpectRandomReads(file->bytes());
  size_t sum = 0;
  for (size_t at = 0; at < kSize; at += 1 << 20) sum += file->bytes()[at];
  EXPECT_EQ(sum, 4u * 'x');
  EXPECT_EQ(Cached(path), 4u * 4096);
}

TEST_F(AtomicFileTest, AppearsOnlyWhenCommitted) {
  const fs::path path = folder_ / "out";
  std::ofstream(path) << "old";
  {
    AtomicFile file(path.string());
    file.Write("new ");
    file.Write(std::string(1000000, 'y'));
    EXPECT_EQ(Read(path), "old");
    file.Commit();
  }
  EXPECT_EQ(Read(path), "new " + std::string(1000000, 'y'));
  EXPECT_EQ(FilesInFolder(), 1u);
}

TEST_F(AtomicFileTest, AbandonedLeavesNothing) {
  {
    AtomicFile((folder_ / "out").string()).Write("half");
  }
  EXPECT_EQ(FilesInFolder(), 0u);
}

TEST_F(AtomicFileTest, MissingFolderIsNotFound) {
  EXPECT_EQ(CodeOf([&] { AtomicFile((folder_ / "no" / "out").string()); }), ErrorCode::kNotFound);
}

TEST_F(AtomicFileTest, FullDiskIsNoSpace) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "needs /dev/full";
  AtomicFile file("/dev/full");
  EXPECT_EQ(CodeOf([&] {
              file.Write("x");
              file.Commit();
            }),
            ErrorCode::kNoSpace);
}

TEST_F(AtomicFileTest, ALinkStaysOneAndItsTargetIsReplaced) {
  fs::create_directories(folder_ / "data");
  std::ofstream(folder_ / "data/file") << "old";
  fs::create_symlink("data/file", folder_ / "link");
  fs::create_symlink("link", folder_ / "link2");
  fs::create_symlink("data/new", folder_ / "dangling");
  for (const char* name : {"link2", "dangling"}) {
    AtomicFile file((folder_ / name).string());
    file.Write("new");
    file.Commit();
    EXPECT_TRUE(fs::is_symlink(folder_ / name));
  }
  EXPECT_EQ(Read(folder_ / "data/file"), "new");
  EXPECT_EQ(Read(folder_ / "data/new"), "new");
  fs::create_symlink("b", folder_ / "a");
  fs::create_symlink("a", folder_ / "b");
  EXPECT_EQ(CodeOf([&] { AtomicFile((folder_ / "a").string()); }), ErrorCode::kIo);
}

TEST_F(AtomicFileTest, AFileInTheWayOfTheTemporaryOneStays) {
  const std::string temporary = (folder_ / "out").string() + ".tmp." + std::to_string(getpid());
  std::ofstream(temporary) << "mine";
  AtomicFile file((folder_ / "out").string());
  file.Write("new");
  file.Commit();
  EXPECT_EQ(Read(temporary), "mine");
  EXPECT_EQ(Read(folder_ / "out"), "new");
}

TEST_F(AtomicFileTest, DevicesAreWrittenNotReplaced) {
  AtomicFile file("/dev/null");
  file.Write("x");
  file.Commit();
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

}  // namespace
}  // namespace moewe
