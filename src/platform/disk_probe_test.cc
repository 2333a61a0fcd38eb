// What is measured about a device and remembered; choosing a method where one is forbidden.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "moewe/error.h"
#include "platform/disk_devices.h"
#include "platform/disk_reader.h"

namespace moewe {
namespace {

namespace fs = std::filesystem;

// With a cache folder of its own.
class DiskProbeTest : public testing::Test {
 protected:
  DiskProbeTest()
      : folder_(fs::temp_directory_path() / ("moewe_disk_probe_test." + std::to_string(getpid()))) {
    fs::create_directories(folder_);
    setenv("XDG_CACHE_HOME", cache_.c_str(), 1);
    std::ofstream(file_) << std::string(8 << 20, 'x');
    DropFromPageCache(file_);
  }
  ~DiskProbeTest() override {
    unsetenv("XDG_CACHE_HOME");
    fs::remove_all(folder_);
  }

  std::string CacheText() const {
    std::ifstream in(cache_ + "/moewe/disks.json");
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  void WriteCache(const std::string& text) const {
    fs::create_directories(cache_ + "/moewe");
    std::ofstream(cache_ + "/moewe/disks.json") << text;
  }

  const fs::path folder_;
  const std::string cache_ = folder_ / "cache";
  const std::string file_ = folder_ / "file";
};

TEST_F(DiskProbeTest, MeasuresWithinItsTimeAndRemembers) {
  const auto begin = std::chrono::steady_clock::now();
  const DiskSpeed speed = ProbeDisk(file_, 300'000, 0.1);
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took, std::chrono::seconds(5));  // a loaded machine's
  EXPECT_GT(speed.bytes_per_s, 1e6);
  EXPECT_TRUE(speed.method == "io_uring" || speed.method == "pread") << speed.method;
  EXPECT_GE(speed.depth, 2u);
  const std::string device = DiskDevice(file_);
  if (device.empty()) return;  // nothing to remember it by
  const auto habit = RememberedHabit(device);
  ASSERT_TRUE(habit);
  EXPECT_EQ(habit->method, speed.method);
  EXPECT_EQ(habit->depth, speed.depth);
  EXPECT_EQ(habit->direct, speed.direct);
}

TEST_F(DiskProbeTest, StartsFromWhatIsRemembered) {
  const std::string device = DiskDevice(file_);
  if (device.empty()) GTEST_SKIP() << "the disk has no name to remember it by";
  const bool direct = ProbeDisk(file_, 4096, 0.02).direct;
  RememberHabit(device, {"pread", 7, direct});
  RememberHabit("serial:other", {"io_uring", 9, true});
  const DiskSpeed speed = ProbeDisk(file_, 100'000, 0.02);
  EXPECT_EQ(speed.method, "pread");
  EXPECT_EQ(speed.depth, 7u);
  EXPECT_GT(speed.bytes_per_s, 0.0);
  const auto reader = OpenDiskReader({{file_}}, {});
  EXPECT_EQ(reader->info().method, "pread");
  EXPECT_EQ(reader->info().depth, 7u);
  EXPECT_EQ(RememberedHabit("serial:other")->depth, 9u);
}

TEST_F(DiskProbeTest, TinyAndEmptyFiles) {
  for (const size_t size : {0, 1, 5000}) {
    fs::resize_file(file_, size);
    const DiskSpeed speed = ProbeDisk(file_, 1 << 20, 0.02);
    EXPECT_EQ(speed.bytes_per_s > 0, size > 0) << size;
    EXPECT_GE(OpenDiskReader({{file_}}, {})->info().depth, 1u);
  }
}

TEST_F(DiskProbeTest, MissingFile) {
  try {
    ProbeDisk(file_ + ".none", 4096, 0.01);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  }
}

TEST_F(DiskProbeTest, NonsenseIsNoMemory) {
  RememberHabit("d", {"pread", 4, true});
  ASSERT_TRUE(RememberedHabit("d"));
  const std::string good = CacheText();
  for (const std::string text :
       {"", "{", "[]", "null", "{\"version\":2}", "{\"version\":1,\"devices\":{}}",
        "{\"version\":2,\"devices\":[]}", "{\"version\":2,\"devices\":{\"d\":3}}",
        "{\"version\":2,\"devices\":{\"d\":{\"method\":\"magic\",\"depth\":4,\"direct\":true}}}",
        "{\"version\":2,\"devices\":{\"d\":{\"method\":\"pread\",\"depth\":0,\"direct\":true}}}",
        "{\"version\":2,\"devices\":{\"d\":{\"method\":\"pread\",\"depth\":-4,\"direct\":true}}}",
        "{\"version\":2,\"devices\":{\"d\":{\"method\":\"pread\",\"depth\":1e9,\"direct\":1}}}",
        "{\"version\":2,\"devices\":{\"d\":{\"method\":7}}}", "\xff\xfe"}) {
    WriteCache(text);
    EXPECT_FALSE(RememberedHabit("d")) << text;
    RememberHabit("d", {"pread", 4, true});  // a good file again
    EXPECT_TRUE(RememberedHabit("d")) << text;
  }
  WriteCache(good);
  EXPECT_TRUE(RememberedHabit("d"));
  const std::string path = cache_ + "/moewe/disks.json";
  fs::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);  // nobody will ever write into it
  EXPECT_FALSE(RememberedHabit("d"));
}

TEST_F(DiskProbeTest, NoFolderToRememberIn) {
  setenv("XDG_CACHE_HOME", "/proc/none", 1);  // nobody can write there
  RememberHabit("d", {"pread", 4, true});
  EXPECT_FALSE(RememberedHabit("d"));
  EXPECT_GT(ProbeDisk(file_, 4096, 0.02).bytes_per_s, 0.0);
  // A relative folder is ignored; the home folder's counts.
  setenv("XDG_CACHE_HOME", "relative", 1);
  const char* home = std::getenv("HOME");
  const std::string old_home = home != nullptr ? home : "";
  setenv("HOME", folder_.c_str(), 1);
  RememberHabit("d", {"pread", 4, true});
  EXPECT_TRUE(fs::exists(folder_ / ".cache/moewe/disks.json"));
  EXPECT_FALSE(fs::exists("relative"));
  unsetenv("HOME");
  RememberHabit("d", {"pread", 4, true});
  EXPECT_FALSE(RememberedHabit("d"));
  if (home != nullptr) setenv("HOME", old_home.c_str(), 1);
}

TEST_F(DiskProbeTest, ADeviceHasAName) {
  EXPECT_EQ(DiskDevice(folder_ / "none"), "");
  EXPECT_EQ(DiskDevice("/proc/self/status"), "");
  EXPECT_EQ(DiskDevice(file_), DiskDevice(folder_));
}

// As in many containers: io_uring_setup fails with `error` in this thread and those it starts.
bool ForbidUring(int error) {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {static_cast<unsigned short>(std::size(code)), code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

TEST_F(DiskProbeTest, WithoutIoUringPreadReads) {
  for (const int error : {EPERM, ENOSYS}) {
    std::thread([&] {
      if (!ForbidUring(error)) return;  // no seccomp here
      for (const auto method : {DiskOptions::Method::kUring, DiskOptions::Method::kAuto}) {
        const auto reader = OpenDiskReader({{file_}}, {method, true, 3, {}});
        EXPECT_EQ(reader->info().method, "pread");
        EXPECT_EQ(reader->info().depth, 3u);
        if (reader->info().direct || method == DiskOptions::Method::kUring) {
          EXPECT_NE(reader->info().fallback.find("io_uring"), std::string::npos)
              << reader->info().fallback;
        }
      }
      const DiskSpeed speed = ProbeDisk(file_, 100'000, 0.02);
      EXPECT_EQ(speed.method, "pread");
      EXPECT_GT(speed.bytes_per_s, 0.0);
    }).join();
    fs::remove_all(cache_);
  }
}

}  // namespace
}  // namespace moewe
