// How much memory this process may use: the lowest of the control groups' limits (v1 and v2) and
// what the machine has available.
#ifndef MOEWE_PLATFORM_MEMORY_LIMITS_H_
#define MOEWE_PLATFORM_MEMORY_LIMITS_H_

#include <cstdint>
#include <optional>
#include <string>

namespace moewe {

struct MemoryLimits {
  uint64_t machine_total = 0;      // MemTotal; 0 if unknown
  uint64_t machine_available = 0;  // MemAvailable; 0 if unknown
  // The tightest control group on the way from ours to the root: its limit, and what is left of it,
  // not counting page cache that the kernel gives back under pressure. Empty without a limit.
  std::optional<uint64_t> cgroup_limit;
  std::optional<uint64_t> cgroup_available;

  // The most this process could ever use, and what it can use now without swapping or being killed.
  uint64_t total() const;
  uint64_t available() const;
};

// Reads /proc/meminfo, /proc/self/cgroup and the group files below /sys/fs/cgroup, all under `root`
// (for tests; "" is the machine). Files that are missing or unreadable count as no limit. Any
// thread.
MemoryLimits ReadMemoryLimits(const std::string& root = "");

// The most memory that this process's control group (v1 or v2) ever held at a time, page cache
// included: others in the group count, and so does what ran in it before. Nothing where the kernel
// does not count it. `root` as above. Any thread.
std::optional<uint64_t> ReadCgroupPeak(const std::string& root = "");

// The budget that --memory names: a size ("8GiB"), "all" (everything available), or "auto": the
// available memory less a tenth, at least 256 MiB of it and at most 4 GiB, for everybody else.
// "min" is 0: the least that can run. Throws Error{kUsage}.
uint64_t MemoryBudgetFromText(const std::string& text, const MemoryLimits& limits);

}  // namespace moewe

#endif  // MOEWE_PLATFORM_MEMORY_LIMITS_H_
