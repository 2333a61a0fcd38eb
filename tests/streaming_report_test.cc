// What streamed models show: `streaming` of the verbs that run, predictions of plan and bench; and
// the peak of a memory control group.
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "paths.h"
#include "program.h"

namespace moewe {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class StreamingReport : public testing::Test {
 protected:
  void SetUp() override {
    model_ = scratch_.At("demo.cmf");
    ASSERT_EQ(RunMoewe("convert " + paths::DemoModel() + " " + model_ + " --quant q4t").code, 0);
  }

  // Flags of a budget halfway between the least and all, for a context that every verb gets.
  std::string Half() const {
    const std::string plan = "plan --json --ctx 1024 " + model_ + " --memory ";
    const uint64_t least = RunMoewe(plan + "min").json()["total"];
    const uint64_t full = RunMoewe(plan + "1GB").json()["total"];
    EXPECT_LT(least, full);
    return " --ctx 1024 --memory " + std::to_string(least + (full - least) / 2);
  }

  static void ExpectCounts(const Json& streaming) {
    const uint64_t uses = streaming["uses"];
    EXPECT_GT(uses, 0u);
    EXPECT_EQ(uses, streaming["resident"].get<uint64_t>() +
                        streaming["prefetched"].get<uint64_t>() +
                        streaming["missed"].get<uint64_t>());
    const Json& rate = streaming["hit_rate"];
    EXPECT_NEAR(rate["total"].get<double>(),
                1.0 - streaming["missed"].get<double>() / static_cast<double>(uses), 1e-9);
    EXPECT_GT(streaming["bytes_read"].get<uint64_t>(), 0u);
    EXPECT_LT(streaming["slots"], streaming["experts"]);
    EXPECT_GT(streaming["arena_bytes"].get<uint64_t>(), 0u);
    EXPECT_GE(streaming["wait_seconds"].get<double>(), 0.0);
    EXPECT_GE(streaming["hidden_seconds"].get<double>(), 0.0);
    EXPECT_EQ(streaming["retries"], 0);
    const std::string method = streaming["disk"]["method"];
    EXPECT_TRUE(method == "io_uring" || method == "pread") << method;
    EXPECT_TRUE(streaming["disk"]["direct"].is_boolean());
    EXPECT_GE(streaming["disk"]["depth"].get<int>(), 1);
    EXPECT_TRUE(streaming.contains("cgroup_peak_bytes"));
  }

  ScratchFolder scratch_;
  std::string model_;
};

TEST_F(StreamingReport, EveryVerbThatRunsCounts) {
  const std::string memory = Half();
  const std::string few = " --ids 1,2,3,4,5";
  const Json run = RunMoewe("run --json " + model_ + few + " --greedy -n 8" + memory).json();
  ExpectCounts(run["streaming"]);
  EXPECT_LE(run["streaming"]["wait_share"].get<double>(), 1.0);
  const Json chat = RunShell("echo Hello | $MOEWE chat --json " + model_ + " --greedy -n 4" +
                             memory + " 2>/dev/null")
                        .json();
  ExpectCounts(chat["streaming"]);
  const std::string out = scratch_.At("l.f32");
  ExpectCounts(
      RunMoewe("logits --json " + model_ + few + " --out " + out + memory).json()["streaming"]);
  const std::string text = paths::DemoModel() + "/eval/tales.txt --window 64 --max-windows 1";
  ExpectCounts(RunMoewe("ppl --json " + model_ + " " + text + " --ctx 1024 --chunk 32 --memory min")
                   .json()["streaming"]);
}

TEST_F(StreamingReport, NothingIsSaidOfAModelInMemory) {
  const Json run =
      RunMoewe("run --json --memory 1GB " + model_ + " --ids 1,2 --greedy -n 2").json();
  EXPECT_FALSE(run.contains("streaming"));
  const Json plan = RunMoewe("plan --json --memory 1GB " + model_).json();
  EXPECT_FALSE(plan.contains("disk"));
}

TEST_F(StreamingReport, StatsSayTheSameToPeople) {
  const Outcome outcome = RunShell("$MOEWE run " + model_ + " --ids 1,2,3 --greedy -n 4 --stats" +
                                   Half() + " 2>&1 >/dev/null");
  ASSERT_EQ(outcome.code, 0) << outcome.out;
  for (const char* words : {"% resident", "% prefetched", "% missed", "waited for",
                            "hidden behind computing", "depth"}) {
    EXPECT_NE(outcome.out.find(words), std::string::npos) << words << " in " << outcome.out;
  }
}

TEST_F(StreamingReport, PlanPredictsFromWhatItMeasured) {
  const Json plan = RunMoewe("plan --json " + model_ + Half()).json();
  ASSERT_EQ(plan["streamed"], true);
  const Json& predicted = plan["predicted"];
  const double uniform = plan["slots"].get<double>() / plan["experts"].get<double>();
  EXPECT_NEAR(predicted["resident_rate"].get<double>(), uniform, 1e-9);
  EXPECT_EQ(predicted["resident_rate_from"], "uniform");
  const double memory =
      plan["scan"]["bytes_per_s"].get<double>() / plan["bytes_per_token"]["weights"].get<double>();
  const double disk = plan["disk"]["bytes_per_s"].get<double>() /
                      ((1.0 - predicted["resident_rate"].get<double>()) *
                       predicted["expert_bytes_per_token"].get<double>());
  const double expected = std::min(memory, disk);
  EXPECT_NEAR(predicted["tokens_per_s"].get<double>(), expected, 1e-6 * expected);
  EXPECT_EQ(predicted["limit"], disk < memory ? "disk" : "memory");
  EXPECT_LT(predicted["expert_bytes_per_token"], plan["bytes_per_token"]["weights"]);

  // A run leaves behind what it preferred.
  ASSERT_EQ(RunMoewe("run " + model_ + " --ids 1,2,3 --greedy --ignore-eos -n 64" + Half()).code,
            0);
  const Json after = RunMoewe("plan --json " + model_ + Half()).json()["predicted"];
  EXPECT_EQ(after["resident_rate_from"], "usage");
  EXPECT_GT(after["resident_rate"].get<double>(), uniform);
  EXPECT_LT(after["resident_rate"].get<double>(), 1.0);
}

TEST_F(StreamingReport, BenchComparesWithWhatMemoryAndDiskAllow) {
  const Json bench = RunMoewe("bench --json " + model_ + " -p 16 -n 8 -d 8 -r 2" + Half()).json();
  ExpectCounts(bench["streaming"]);
  const Json& decode = bench["streaming"]["decode"];
  EXPECT_EQ(decode["tokens"], 16);
  EXPECT_EQ(bench["streaming"]["prefill"]["tokens"], 32);
  EXPECT_GT(bench["disk"]["bytes_per_s"].get<double>(), 1e5);
  EXPECT_GT(bench["achieved"].get<double>(), 0.0);
  const double rate = bench["predicted"]["resident_rate"];
  EXPECT_EQ(rate, decode["hit_rate"]["resident"].get<double>());
  EXPECT_GE(decode["hit_rate"]["total"].get<double>(), rate);
  EXPECT_NEAR(rate,
              decode["resident"].get<double>() /
                  (decode["resident"].get<double>() + decode["prefetched"].get<double>() +
                   decode["missed"].get<double>()),
              1e-9);
  EXPECT_LT(bench["predicted"]["expert_bytes_per_token"], bench["decode"]["bytes_per_token"]);
}

// Where the file system is memory there is no direct I/O: said, and otherwise the same.
TEST_F(StreamingReport, AFileInMemory) {
  const fs::path folder = "/dev/shm/moewe-test-" + std::to_string(getpid());
  std::error_code error;
  fs::create_directory(folder, error);
  if (!error) fs::copy(model_, folder / "demo.cmf", error);
  struct statfs system = {};
  const bool tmpfs = !error && statfs(folder.c_str(), &system) == 0 && system.f_type == TMPFS_MAGIC;
  const std::string run = "run --json --ids 1,2,3 --greedy -n 8 " + Half() + " ";
  const Outcome outcome = tmpfs ? RunMoewe(run + (folder / "demo.cmf").string()) : Outcome();
  fs::remove_all(folder, error);
  if (!tmpfs) GTEST_SKIP() << "/dev/shm is no memory that can be written to";
  ASSERT_EQ(outcome.code, 0) << outcome.out;
  const Json disk = outcome.json()["streaming"]["disk"];
  EXPECT_EQ(disk["direct"], false);
  const std::string fallback = disk["fallback"];
  EXPECT_NE(fallback.find("demo.cmf: its file system is memory"), std::string::npos) << fallback;
  EXPECT_EQ(outcome.json()["ids"], RunMoewe(run + model_).json()["ids"]);
}

// A memory control group (v1 or v2) below ours, if we may make one.
class Group {
 public:
  explicit Group(uint64_t limit) {
    const bool v1 = fs::is_directory("/sys/fs/cgroup/memory");
    std::string own = "/";
    std::ifstream groups("/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {
      const size_t second = line.find(':', line.find(':') + 1);
      const std::string kind = line.substr(line.find(':') + 1, second - line.find(':') - 1);
      if (v1 ? kind == "memory" : kind.empty()) own = line.substr(second + 1);
    }
    const fs::path root = v1 ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup";
    path_ = root / fs::path(own).relative_path() / ("moewe-test-" + std::to_string(getpid()));
    std::error_code error;
    if (!fs::create_directory(path_, error)) {
      problem_ = "no control group can be made: " + path_.string() + ": " + error.message();
      return;
    }
    peak_ = path_ / (v1 ? "memory.max_usage_in_bytes" : "memory.peak");
    std::ofstream limits(path_ / (v1 ? "memory.limit_in_bytes" : "memory.max"));
    limits << limit;
    limits.close();
    if (!limits || !fs::exists(peak_)) problem_ = "a control group has no memory limit or peak";
  }
  ~Group() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove(path_, ignored);
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const std::string& problem() const { return problem_; }
  std::string procs() const { return (path_ / "cgroup.procs").string(); }
  uint64_t Peak() const {
    uint64_t peak = 0;
    std::ifstream(peak_) >> peak;
    return peak;
  }

 private:
  fs::path path_, peak_;
  std::string problem_;
};

TEST_F(StreamingReport, AControlGroupOfTheBudgetIsEnough) {
  const uint64_t least = RunMoewe("plan --json --memory min " + model_).json()["total"];
  for (const uint64_t budget : {least, least + (uint64_t{1} << 20)}) {
    const Group group(budget / 4096 * 4096 + 4096);
    if (!group.problem().empty()) GTEST_SKIP() << group.problem();
    const Outcome outcome = RunShell("echo $$ > " + group.procs() + "; exec $MOEWE run --json " +
                                     model_ + " --ids 1,2,3,4,5,6,7 --greedy -n 16 --memory " +
                                     std::to_string(budget) + " 2>/dev/null");
    ASSERT_EQ(outcome.code, 0) << outcome.out;
    EXPECT_EQ(outcome.json()["ids"].size(), 16u);
    EXPECT_GT(group.Peak(), 0u);
    EXPECT_GT(outcome.json()["streaming"]["cgroup_peak_bytes"].get<uint64_t>(), 0u);
  }
}

}  // namespace
}  // namespace moewe
