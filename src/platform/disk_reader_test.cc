// Both ways of reading, direct and through the page cache, on disk and in memory; and the fake
// disk.
#include "platform/disk_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <span>

#include "fake_disk.h"
#include "moewe/error.h"
#include "platform/page_cache.h"

namespace moewe {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kPage = kDiskAlignment;

uint64_t RoundUp(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Memory that reads may go to.
class Pages {
 public:
  explicit Pages(uint64_t bytes)
      : size_(RoundUp(bytes)),
        data_(static_cast<uint8_t*>(std::aligned_alloc(kPage, size_)), &std::free) {
    std::fill_n(data_.get(), size_, uint8_t{0xee});
  }
  uint8_t* data() const { return data_.get(); }
  std::span<uint8_t> span() const { return {data(), size_}; }

 private:
  uint64_t size_;
  std::unique_ptr<uint8_t, decltype(&std::free)> data_;
};

std::vector<uint8_t> RandomBytes(uint64_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint8_t> bytes(RoundUp(size));
  for (size_t i = 0; i < bytes.size(); i += 8) {
    const uint64_t word = random();
    std::memcpy(&bytes[i], &word, 8);
  }
  bytes.resize(size);
  return bytes;
}

// Reads everything that is pending.
std::map<uint64_t, DiskResult> ReapAll(DiskReader& reader) {
  std::map<uint64_t, DiskResult> by_tag;
  std::vector<DiskResult> results;
  while (reader.pending() != 0) {
    results.clear();
    const size_t pending = reader.pending();
    reader.Reap(true, &results);
    EXPECT_FALSE(results.empty());
    EXPECT_EQ(reader.pending() + results.size(), pending);
    for (const DiskResult& result : results) {
      EXPECT_TRUE(by_tag.emplace(result.tag, result).second) << "tag " << result.tag << " twice";
    }
  }
  return by_tag;
}

class FolderTest : public testing::Test {
 protected:
  explicit FolderTest(const std::string& parent = fs::temp_directory_path())
      : folder_(parent + "/moewe_disk_reader_test." + std::to_string(getpid())) {
    fs::create_directories(folder_);
  }
  ~FolderTest() override { fs::remove_all(folder_); }

  // Written to disk, and in the page cache no longer.
  std::string Make(const std::string& name, const std::vector<uint8_t>& content) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(content.data()),
               static_cast<std::streamsize>(content.size()));
    DropFromPageCache(path);
    return path;
  }
  const std::string folder_;
};

bool IsMemory(const std::string& path) {
  struct statfs system = {};
  return statfs(path.c_str(), &system) == 0 && system.f_type == TMPFS_MAGIC;
}

uint64_t BytesInCache(const std::string& path) {
  const FileDescriptor file = FileDescriptor::OpenForReading(path);
  return CachedBytes(file.get(), 0, fs::file_size(path)).value();
}

struct Way {
  DiskOptions::Method method = DiskOptions::Method::kAuto;
  bool direct = true;
  std::string place;  // folder of the files

  friend void PrintTo(const Way& way, std::ostream* out) {
    *out << (way.method == DiskOptions::Method::kPread ? "pread" : "uring")
         << (way.direct ? "_direct" : "_buffered") << (way.place == "/dev/shm" ? "_tmpfs" : "");
  }
};

class DiskReaderTest : public FolderTest, public testing::WithParamInterface<Way> {
 protected:
  DiskReaderTest()
      : FolderTest(GetParam().place.empty() ? fs::temp_directory_path().string()
                                            : GetParam().place) {}

  std::unique_ptr<DiskReader> Open(const std::vector<std::string>& files, uint32_t depth,
                                   std::span<uint8_t> memory = {}) {
    return OpenDiskReader(files, {GetParam().method, GetParam().direct, depth, memory});
  }
};

TEST_P(DiskReaderTest, ManySmallReadsOfTwoFiles) {
  const std::vector<std::vector<uint8_t>> contents = {RandomBytes(1 << 20, 1),
                                                      RandomBytes(300 * kPage + 123, 2)};
  const auto reader = Open({Make("a", contents[0]), Make("b", contents[1])}, 3);
  EXPECT_LE(reader->info().depth, 3u);
  constexpr uint64_t kReads = 200;
  const Pages memory(kReads * 2 * kPage);
  std::mt19937_64 random(3);
  std::vector<DiskRead> reads;
  for (uint64_t i = 0; i < kReads; ++i) {
    const auto file = static_cast<uint32_t>(random() % 2);
    const uint64_t bytes = (1 + random() % 2) * kPage;
    const uint64_t offset = random() % ((contents[file].size() - bytes) / kPage) * kPage;
    reads.push_back({file, offset, bytes, memory.data() + i * 2 * kPage, bytes, i});
  }
  for (size_t i = 0; i < reads.size(); i += 50) {
    reader->Submit(std::span(reads).subspan(i, 50),
                   i % 100 == 0 ? DiskUrgency::kDemand : DiskUrgency::kPrefetch);
  }
  const auto results = ReapAll(*reader);
  ASSERT_EQ(results.size(), kReads);
  for (const DiskRead& read : reads) {
    const DiskResult& result = results.at(read.tag);
    EXPECT_TRUE(result.ok(read.needed)) << result.error << " " << result.bytes;
    EXPECT_EQ(std::memcmp(read.into, &contents[read.file][read.offset], read.bytes), 0);
  }
}

TEST_P(DiskReaderTest, OneHugeReadBeyondTheUnalignedEnd) {
  const std::vector<uint8_t> content = RandomBytes((5 << 20) + 777, 4);
  const std::string path = Make("a", content);
  const Pages memory(content.size() + 5 * kPage);
  const auto reader = Open({path}, 2, memory.span());
  reader->Submit({{{0, 0, memory.span().size(), memory.data(), content.size(), 9}}},
                 DiskUrgency::kDemand);
  const DiskResult result = ReapAll(*reader).at(9);
  EXPECT_TRUE(result.ok(content.size()));
  EXPECT_EQ(result.bytes, content.size());
  EXPECT_EQ(std::memcmp(memory.data(), content.data(), content.size()), 0);
}

TEST_P(DiskReaderTest, WhatTheFileDoesNotHaveIsMissing) {
  const std::vector<uint8_t> content = RandomBytes(3 * kPage + 10, 5);
  const auto reader = Open({Make("a", content), Make("empty", {})}, 2);
  const Pages memory(8 * kPage);
  const std::vector<DiskRead> reads = {
      {0, 3 * kPage, kPage, memory.data(), 11, 0},
      {0, 3 * kPage, kPage, memory.data() + kPage, 10, 1},
      {0, 64 * kPage, kPage, memory.data() + 2 * kPage, 1, 2},
      {1, 0, kPage, memory.data() + 3 * kPage, 1, 3},
      {0, 0, 0, memory.data() + 4 * kPage, 0, 4},
  };
  reader->Submit(reads, DiskUrgency::kDemand);
  const auto results = ReapAll(*reader);
  for (const auto& [tag, result] : results) EXPECT_EQ(result.error, 0) << tag;
  EXPECT_EQ(results.at(0).bytes, 10u);
  EXPECT_FALSE(results.at(0).ok(11));
  EXPECT_TRUE(results.at(1).ok(10));
  EXPECT_EQ(results.at(2).bytes, 0u);
  EXPECT_EQ(results.at(3).bytes, 0u);
  EXPECT_TRUE(results.at(4).ok(0));
}

TEST_P(DiskReaderTest, TruncatedWhileReading) {
  const std::vector<uint8_t> content = RandomBytes(64 * kPage, 6);
  const std::string path = Make("a", content);
  const auto reader = Open({path}, 2);
  const Pages memory(64 * kPage);
  fs::resize_file(path, 20 * kPage + 5);
  reader->Submit({{{0, 16 * kPage, 32 * kPage, memory.data(), 32 * kPage, 1}}},
                 DiskUrgency::kDemand);
  const DiskResult result = ReapAll(*reader).at(1);
  EXPECT_EQ(result.error, 0);
  EXPECT_EQ(result.bytes, 4 * kPage + 5);
  EXPECT_EQ(std::memcmp(memory.data(), &content[16 * kPage], result.bytes), 0);
}

TEST_P(DiskReaderTest, AReplacedFileIsReadAsItWas) {
  const std::vector<uint8_t> content = RandomBytes(8 * kPage, 7);
  const std::string path = Make("a", content);
  const auto reader = Open({path}, 2);
  fs::rename(Make("b", RandomBytes(8 * kPage, 8)), path);
  const Pages memory(8 * kPage);
  reader->Submit({{{0, 0, 8 * kPage, memory.data(), 8 * kPage, 1}}}, DiskUrgency::kDemand);
  EXPECT_TRUE(ReapAll(*reader).at(1).ok(8 * kPage));
  EXPECT_EQ(std::memcmp(memory.data(), content.data(), content.size()), 0);
}

TEST_P(DiskReaderTest, AnErrorOfTheSystemIsTheReads) {
  const auto reader = Open({Make("a", RandomBytes(4 * kPage, 9))}, 2);
  // Memory that nothing can be read into.
  void* none = mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(none, MAP_FAILED);
  const Pages memory(kPage);
  const std::vector<DiskRead> reads = {{0, 0, kPage, static_cast<uint8_t*>(none), kPage, 1},
                                       {7, 0, kPage, memory.data(), kPage, 2},
                                       {0, 0, kPage, memory.data(), kPage, 3}};
  reader->Submit(reads, DiskUrgency::kDemand);
  const auto results = ReapAll(*reader);
  EXPECT_EQ(results.at(1).error, EFAULT);
  EXPECT_FALSE(results.at(1).ok(0));
  EXPECT_EQ(results.at(2).error, EBADF);
  EXPECT_TRUE(results.at(3).ok(kPage));
  munmap(none, kPage);
}

TEST_P(DiskReaderTest, NothingStaysInThePageCache) {
  const std::vector<uint8_t> content = RandomBytes((8 << 20) + 99, 10);
  const std::string path = Make("a", content);
  // In memory the file is the page cache and stays there.
  const uint64_t expected = IsMemory(path) ? RoundUp(content.size()) : 0;
  ASSERT_EQ(BytesInCache(path), expected);
  const Pages memory(content.size() + 75 * kPage);
  {
    const auto reader = Open({path}, 3);
    EXPECT_EQ(BytesInCache(path), expected);
    std::vector<DiskRead> reads;
    for (uint64_t at = 0; at < content.size(); at += 75 * kPage) {
      reads.push_back({0, at, 75 * kPage, memory.data() + at, 0, at});
    }
    reader->Submit(reads, DiskUrgency::kDemand);
    for (const auto& [tag, result] : ReapAll(*reader)) EXPECT_EQ(result.error, 0) << tag;
    EXPECT_EQ(BytesInCache(path), expected);
    reader->Submit({{{0, 0, memory.span().size(), memory.data(), content.size(), 1}}},
                   DiskUrgency::kDemand);
    EXPECT_TRUE(ReapAll(*reader).at(1).ok(content.size()));
  }
  EXPECT_EQ(BytesInCache(path), expected);
}

// Where it can be, memory is registered with the kernel after a while.
TEST_P(DiskReaderTest, MemoryThatIsReadIntoAgainAndAgain) {
  constexpr uint64_t kRead = 130 * kPage;
  const std::vector<uint8_t> content = RandomBytes(40 * kRead, 14);
  const Pages memory(9 * kRead);  // pieces of 2 MiB: some reads lie across their edges
  const auto reader = Open({Make("a", content)}, 3, memory.span());
  for (uint64_t round = 0; round < 4; ++round) {
    std::vector<DiskRead> reads;
    for (uint64_t i = 0; i < 9; ++i) {
      reads.push_back({0, (9 * round + i) * kRead, kRead, memory.data() + i * kRead, kRead, i});
    }
    reader->Submit(reads, DiskUrgency::kDemand);
    for (const auto& [tag, result] : ReapAll(*reader)) EXPECT_TRUE(result.ok(kRead)) << tag;
    EXPECT_EQ(std::memcmp(memory.data(), &content[9 * round * kRead], 9 * kRead), 0) << round;
  }
}

TEST_P(DiskReaderTest, EndsWithReadsInFlight) {
  const std::vector<uint8_t> content = RandomBytes(4 << 20, 11);
  const std::string path = Make("a", content);
  for (int round = 0; round < 6; ++round) {
    const Pages memory(content.size());
    const auto reader = Open({path}, 4, memory.span());
    std::vector<DiskRead> reads;
    for (uint64_t at = 0; at < content.size(); at += 64 * kPage) {
      reads.push_back({0, at, 64 * kPage, memory.data() + at, 64 * kPage, at});
    }
    reader->Submit(reads, DiskUrgency::kDemand);
    std::vector<DiskResult> results;
    if (round % 2 == 0) reader->Reap(true, &results);
  }
}

TEST_P(DiskReaderTest, CancelledReadsDoNotCome) {
  const auto reader = Open({Make("a", RandomBytes(1 << 20, 12))}, 1);
  const Pages memory(1 << 20);
  std::vector<DiskRead> reads;
  for (uint64_t i = 0; i < 64; ++i) {
    reads.push_back({0, i * kPage, kPage, memory.data() + i * kPage, kPage, i});
  }
  reader->Submit(reads, DiskUrgency::kPrefetch);
  reader->Promote(40);
  reader->Promote(1000);
  std::vector<uint64_t> cancelled;
  reader->CancelQueued(&cancelled);
  const auto results = ReapAll(*reader);
  EXPECT_EQ(results.size() + cancelled.size(), 64u);
  EXPECT_EQ(results.count(40), 1u);
  for (const uint64_t tag : cancelled) EXPECT_EQ(results.count(tag), 0u);
  std::vector<DiskResult> none;
  reader->Reap(true, &none);  // nothing is pending: does not wait
  EXPECT_TRUE(none.empty());
}

TEST_P(DiskReaderTest, SaysWhatItDoes) {
  const std::string path = Make("a", RandomBytes(3 * kPage, 13));
  const auto reader = Open({path}, 2);
  const DiskInfo& info = reader->info();
  if (IsMemory(path)) {
    EXPECT_FALSE(info.direct);
    EXPECT_EQ(info.fallback.find("memory") != std::string::npos, GetParam().direct)
        << info.fallback;
  } else {
    EXPECT_EQ(info.direct || !info.fallback.empty(), GetParam().direct) << info.fallback;
  }
  EXPECT_EQ(info.depth, 2u);
}

TEST_P(DiskReaderTest, MissingFilesAndFolders) {
  for (const auto& [path, code] :
       {std::pair(folder_ + "/none", ErrorCode::kNotFound), std::pair(folder_, ErrorCode::kIo),
        std::pair(std::string("/dev/null"), ErrorCode::kIo)}) {
    try {
      Open({Make("a", {1}), path}, 2);
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_EQ(error.where().file, path);
    }
  }
}

std::vector<Way> Ways() {
  std::vector<Way> ways;
  for (const auto method : {DiskOptions::Method::kPread, DiskOptions::Method::kUring}) {
    ways.push_back({method, true, ""});
    ways.push_back({method, false, ""});
    if (fs::is_directory("/dev/shm")) ways.push_back({method, true, "/dev/shm"});
  }
  return ways;
}

INSTANTIATE_TEST_SUITE_P(Ways, DiskReaderTest, testing::ValuesIn(Ways()),
                         testing::PrintToStringParamName());

class FakeDiskTest : public testing::Test {
 protected:
  DiskRead ReadOfPage(uint64_t page, uint64_t tag) {
    return {0, page * kPage, kPage, memory_.data() + page * kPage, kPage, tag};
  }

  const std::vector<uint8_t> content_ = RandomBytes(16 * kPage, 20);
  const Pages memory_{16 * kPage};
  const std::shared_ptr<FakeDisk> disk_ = std::make_shared<FakeDisk>();
};

TEST_F(FakeDiskTest, DemandComesFirstAndPromotedReadsWithIt) {
  disk_->AddFile(content_);
  disk_->Stop();
  const auto reader = disk_->MakeReader({.depth = 1});
  reader->Submit({{ReadOfPage(0, 0)}}, DiskUrgency::kDemand);
  disk_->WaitForStarted(1);
  const std::vector<DiskRead> prefetches = {ReadOfPage(1, 1), ReadOfPage(2, 2), ReadOfPage(3, 3)};
  reader->Submit(prefetches, DiskUrgency::kPrefetch);
  reader->Submit({{ReadOfPage(4, 4)}}, DiskUrgency::kDemand);
  reader->Promote(3);
  disk_->Go();
  EXPECT_EQ(ReapAll(*reader).size(), 5u);
  std::vector<uint64_t> order;
  for (const DiskRead& read : disk_->started()) order.push_back(read.tag);
  EXPECT_EQ(order, (std::vector<uint64_t>{0, 4, 3, 1, 2}));
}

TEST_F(FakeDiskTest, DelaysReorderAndBytesAreRight) {
  disk_->AddFile(content_);
  const auto reader = disk_->MakeReader(
      {.seed = 5, .least = std::chrono::microseconds(1), .most = std::chrono::microseconds(300)});
  std::vector<DiskRead> reads;
  for (uint64_t i = 0; i < 16; ++i) reads.push_back(ReadOfPage(i, i));
  reader->Submit(reads, DiskUrgency::kDemand);
  for (const auto& [tag, result] : ReapAll(*reader)) EXPECT_TRUE(result.ok(kPage)) << tag;
  EXPECT_EQ(std::memcmp(memory_.data(), content_.data(), content_.size()), 0);
  EXPECT_EQ(disk_->bytes_read(), content_.size());
}

TEST_F(FakeDiskTest, Faults) {
  disk_->AddFile(content_);
  disk_->FailReads(0, 5 * kPage + 7, 1);
  disk_->FailReads(0, 6 * kPage, -1, ENXIO);
  disk_->Resize(0, 8 * kPage + 3);
  const auto reader = disk_->MakeReader();
  for (const int expected : {EIO, 0}) {
    const std::vector<DiskRead> reads = {ReadOfPage(5, 5), ReadOfPage(6, 6), ReadOfPage(8, 8)};
    reader->Submit(reads, DiskUrgency::kDemand);
    const auto results = ReapAll(*reader);
    EXPECT_EQ(results.at(5).error, expected);
    EXPECT_EQ(results.at(6).error, ENXIO);
    EXPECT_EQ(results.at(8).bytes, 3u);
    EXPECT_FALSE(results.at(8).ok(kPage));
  }
}

TEST_F(FakeDiskTest, EndsWhileStopped) {
  disk_->AddFile(content_);
  disk_->Stop();
  const auto reader = disk_->MakeReader();
  std::vector<DiskRead> reads;
  for (uint64_t i = 0; i < 16; ++i) reads.push_back(ReadOfPage(i, i));
  reader->Submit(reads, DiskUrgency::kDemand);
  disk_->WaitForStarted(4);
}

}  // namespace
}  // namespace moewe
