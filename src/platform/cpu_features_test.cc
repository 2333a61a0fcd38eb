#include "platform/cpu_features.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace moewe {
namespace {

namespace fs = std::filesystem;

class CgroupLimit : public ::testing::Test {
 protected:
  CgroupLimit() {
    root_ =
        fs::path(::testing::TempDir()) /
        ("cgroup_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~CgroupLimit() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  int Limit() { return CgroupCpuLimit(root_ / "fs", root_ / "self"); }

  fs::path root_;
};

TEST_F(CgroupLimit, VersionTwoTakesTheTightestAncestor) {
  Write("self", "0::/a/b\n");
  Write("fs/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(Limit(), 0);
  Write("fs/a/cpu.max", "250000 100000\n");
  EXPECT_EQ(Limit(), 3);
  Write("fs/cpu.max", "50000 100000\n");
  EXPECT_EQ(Limit(), 1);
}

TEST_F(CgroupLimit, VersionOne) {
  Write("self", "5:memory:/x\n4:cpu,cpuacct:/job\n");
  Write("fs/cpu/job/cpu.cfs_quota_us", "-1\n");
  Write("fs/cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Limit(), 0);
  Write("fs/cpu/job/cpu.cfs_quota_us", "400000\n");
  EXPECT_EQ(Limit(), 4);
}

TEST_F(CgroupLimit, MissingOrBrokenFilesMeanNoLimit) {
  EXPECT_EQ(Limit(), 0);
  Write("self", "nonsense\n0::/a\n");
  Write("fs/a/cpu.max", "many 100000\n");
  EXPECT_EQ(Limit(), 0);
}

TEST(CpuFeatures, UsableCpusAreSane) {
  EXPECT_GE(UsableCpus(), 1);
  EXPECT_LE(static_cast<size_t>(UsableCpus()), AllowedCpus().size());
}

}  // namespace
}  // namespace moewe
