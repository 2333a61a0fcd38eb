#include "platform/memory_limits.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "moewe/error.h"

namespace moewe {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// A machine's files in a folder of the test's own.
class MemoryLimitsTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/limits_" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
    Write(
        "/proc/meminfo",
        "MemTotal:       8388608 kB\nMemFree:   1 kB\nMemAvailable:   4194304 kB\nBuffers: 5 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }

  std::string root_;
};

TEST_F(MemoryLimitsTest, MachineAlone) {
  Write("/proc/self/cgroup", "0::/user.slice\n");
  const MemoryLimits limits = ReadMemoryLimits(root_);
  EXPECT_EQ(limits.total(), 8192 * kMiB);
  EXPECT_EQ(limits.available(), 4096 * kMiB);
  EXPECT_FALSE(limits.cgroup_limit);
}

TEST_F(MemoryLimitsTest, V2TakesTheTightestOnTheWayUp) {
  Write("/proc/self/cgroup", "0::/a/b\n");
  Write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  Write("/sys/fs/cgroup/a/memory.max", "1073741824\n");
  Write("/sys/fs/cgroup/a/memory.current", "536870912\n");
  Write("/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 104857600\nactive_file 209715200\n");
  const MemoryLimits limits = ReadMemoryLimits(root_);
  EXPECT_EQ(limits.total(), 1024 * kMiB);
  EXPECT_EQ(limits.available(), (1024 - 512 + 300) * kMiB);
}

TEST_F(MemoryLimitsTest, V2HighCountsAsWell) {
  Write("/proc/self/cgroup", "0::/a\n");
  Write("/sys/fs/cgroup/a/memory.max", "2147483648\n");
  Write("/sys/fs/cgroup/a/memory.high", "1073741824\n");
  EXPECT_EQ(ReadMemoryLimits(root_).total(), 1024 * kMiB);
}

TEST_F(MemoryLimitsTest, InsideAContainerTheMountPointIsTheGroup) {
  Write("/proc/self/cgroup", "0::/docker/0123456789abcdef\n");
  Write("/sys/fs/cgroup/memory.max", "536870912\n");
  EXPECT_EQ(ReadMemoryLimits(root_).total(), 512 * kMiB);
}

TEST_F(MemoryLimitsTest, V1WithItsNumberForNone) {
  Write("/proc/self/cgroup", "11:cpu,cpuacct:/x\n7:hugetlb,memory:/job/1\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("/sys/fs/cgroup/memory/job/1/memory.limit_in_bytes", "2147483648\n");
  Write("/sys/fs/cgroup/memory/job/1/memory.usage_in_bytes", "1073741824\n");
  Write("/sys/fs/cgroup/memory/job/1/memory.stat",
        "inactive_file 7\ntotal_inactive_file 536870912\n");
  const MemoryLimits limits = ReadMemoryLimits(root_);
  EXPECT_EQ(limits.total(), 2048 * kMiB);
  EXPECT_EQ(limits.available(), 1536 * kMiB);
}

TEST_F(MemoryLimitsTest, TheLowestWins) {
  Write("/proc/self/cgroup", "3:memory:/v1\n0::/v2\n");
  Write("/sys/fs/cgroup/memory/v1/memory.limit_in_bytes", "3221225472\n");
  Write("/sys/fs/cgroup/unified/v2/memory.max", "1610612736\n");
  EXPECT_EQ(ReadMemoryLimits(root_).available(), 1536 * kMiB);
  Write("/sys/fs/cgroup/unified/v2/memory.max", "99999999999\n");
  Write("/sys/fs/cgroup/memory/v1/memory.limit_in_bytes", "99999999999\n");
  EXPECT_EQ(ReadMemoryLimits(root_).available(), 4096 * kMiB);
}

TEST_F(MemoryLimitsTest, BrokenFilesAreNoLimit) {
  std::filesystem::remove_all(root_);
  EXPECT_GT(ReadMemoryLimits(root_).available(), uint64_t{1} << 62);
  Write("/proc/self/cgroup", "nonsense\n::\n0::\n");
  Write("/sys/fs/cgroup/memory.max", "\n");
  EXPECT_FALSE(ReadMemoryLimits(root_).cgroup_limit);
}

TEST_F(MemoryLimitsTest, PeakOfTheGroup) {
  Write("/proc/self/cgroup", "0::/a/b\n");
  EXPECT_FALSE(ReadCgroupPeak(root_));
  Write("/sys/fs/cgroup/memory.peak", "9\n");
  EXPECT_EQ(ReadCgroupPeak(root_), 9u);  // a container, whose group is the mount point
  Write("/sys/fs/cgroup/a/memory.peak", "7\n");
  Write("/sys/fs/cgroup/a/b/memory.peak", "5\n");
  EXPECT_EQ(ReadCgroupPeak(root_), 5u);
}

TEST_F(MemoryLimitsTest, NoPeakOfAGroupThatDoesNotCount) {
  Write("/proc/self/cgroup", "0::/a\n");
  Write("/sys/fs/cgroup/a/cgroup.procs", "1\n");
  Write("/sys/fs/cgroup/memory.peak", "9\n");
  EXPECT_FALSE(ReadCgroupPeak(root_));
}

TEST_F(MemoryLimitsTest, PeakOfV1) {
  Write("/proc/self/cgroup", "7:hugetlb,memory:/job\n0::/\n");
  Write("/sys/fs/cgroup/memory/job/memory.max_usage_in_bytes", "123456789\n");
  EXPECT_EQ(ReadCgroupPeak(root_), 123456789u);
}

TEST(MemoryLimits, ThisMachine) {
  const MemoryLimits limits = ReadMemoryLimits();
  EXPECT_GT(limits.available(), 0u);
  EXPECT_LE(limits.available(), limits.total());
}

TEST(MemoryBudgetFromText, Words) {
  MemoryLimits limits;
  limits.machine_total = 8192 * kMiB;
  limits.machine_available = 4096 * kMiB;
  EXPECT_EQ(MemoryBudgetFromText("2GiB", limits), 2048 * kMiB);
  EXPECT_EQ(MemoryBudgetFromText("all", limits), 4096 * kMiB);
  EXPECT_EQ(MemoryBudgetFromText("min", limits), 0u);
  EXPECT_EQ(MemoryBudgetFromText("auto", limits), 4096 * kMiB - 4096 * kMiB / 10);
  limits.machine_available = 100 * kMiB;
  EXPECT_EQ(MemoryBudgetFromText("auto", limits), 0u);
  EXPECT_THROW(MemoryBudgetFromText("lots", limits), Error);
}

}  // namespace
}  // namespace moewe
