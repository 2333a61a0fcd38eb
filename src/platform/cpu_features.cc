#include "platform/cpu_features.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

namespace moewe {
namespace {

CpuFeatures Detect() {
  CpuFeatures features;
#if defined(__x86_64__)
  // These builtins also check that the operating system saves the registers (XGETBV).
  __builtin_cpu_init();
  features.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi2");
  features.avx512_vnni =
      features.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni");
#endif
  return features;
}

std::optional<long long> ReadQuota(const std::string& path) {
  std::ifstream in(path);
  long long value = 0;
  if (in >> value) return value;
  return std::nullopt;
}

// CPUs that quota / period microseconds amount to; nothing without a limit.
std::optional<int> Quotient(long long quota, long long period) {
  if (quota <= 0 || period <= 0) return std::nullopt;
  return static_cast<int>(std::clamp<long long>((quota + period - 1) / period, 1, 1 << 20));
}

std::optional<int> LimitOfFolder(const std::string& folder) {
  std::ifstream v2(folder + "/cpu.max");
  std::string quota;
  long long period = 0;
  if (v2 >> quota >> period) {
    if (quota == "max") return std::nullopt;
    try {
      return Quotient(std::stoll(quota), period);
    } catch (const std::exception&) {
      return std::nullopt;
    }
  }
  const auto v1_quota = ReadQuota(folder + "/cpu.cfs_quota_us");
  const auto v1_period = ReadQuota(folder + "/cpu.cfs_period_us");
  if (v1_quota && v1_period) return Quotient(*v1_quota, *v1_period);
  return std::nullopt;
}

}  // namespace

const CpuFeatures& GetCpuFeatures() {
  static const CpuFeatures features = Detect();
  return features;
}

std::vector<int> AllowedCpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    }
  }
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

int CgroupCpuLimit(const std::string& root, const std::string& proc_cgroup) {
  // A line is id:controllers:path; v2 has empty controllers. A limit may sit on any ancestor.
  std::ifstream in(proc_cgroup);
  std::string line;
  int limit = 0;
  const auto consider = [&limit](const std::string& folder) {
    const auto found = LimitOfFolder(folder);
    if (found && (limit == 0 || *found < limit)) limit = *found;
  };
  while (std::getline(in, line)) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string mount = root;
    if (!controllers.empty()) {
      std::istringstream names(controllers);
      std::string name;
      bool has_cpu = false;
      while (std::getline(names, name, ',')) has_cpu = has_cpu || name == "cpu";
      if (!has_cpu) continue;
      mount += "/cpu";
    }
    std::string path = line.substr(second + 1);
    while (true) {
      consider(mount + (path == "/" ? "" : path));
      const size_t slash = path.rfind('/');
      if (slash == std::string::npos || path == "/" || path.empty()) break;
      path = slash == 0 ? "/" : path.substr(0, slash);
    }
  }
  return limit;
}

int UsableCpus() {
  const int allowed = static_cast<int>(AllowedCpus().size());
  const int limit = CgroupCpuLimit();
  return limit == 0 ? allowed : std::min(allowed, limit);
}

}  // namespace moewe
