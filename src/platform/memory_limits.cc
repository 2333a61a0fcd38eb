#include "platform/memory_limits.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/size.h"

namespace moewe {
namespace {

std::optional<std::string> ReadText(const std::string& path) {
  std::ifstream in(path);
  if (!in) return std::nullopt;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// The number that `text` starts with; nothing for "max" or anything else.
std::optional<uint64_t> LeadingNumber(std::string_view text) {
  uint64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec == std::errc::result_out_of_range) return std::numeric_limits<uint64_t>::max();
  if (parsed.ec != std::errc()) return std::nullopt;
  return value;
}

std::optional<uint64_t> ReadNumber(const std::string& path) {
  const auto text = ReadText(path);
  return text ? LeadingNumber(*text) : std::nullopt;
}

// The number behind `key` at the start of a line: "inactive_file 4096", "MemTotal:   1 kB".
std::optional<uint64_t> ReadField(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    const size_t digits = line.find_first_not_of(" \t:", key.size());
    if (digits == std::string::npos || digits == key.size()) continue;
    return LeadingNumber(std::string_view(line).substr(digits));
  }
  return std::nullopt;
}

uint64_t Minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

struct GroupFiles {
  std::vector<const char*> limits;
  const char* usage;
  const char* peak;
  std::vector<const char*> cache_keys;  // reclaimable page cache in memory.stat
};

const GroupFiles kV2 = {{"memory.max", "memory.high"},
                        "memory.current",
                        "memory.peak",
                        {"inactive_file", "active_file"}};
const GroupFiles kV1 = {{"memory.limit_in_bytes"},
                        "memory.usage_in_bytes",
                        "memory.max_usage_in_bytes",
                        {"total_inactive_file", "total_active_file"}};

// One of the groups that this process is in.
struct Group {
  std::string mount;  // of its hierarchy
  std::string path;   // below it: empty, or with a slash in front and none behind
  const GroupFiles& files;
};

// Those that may count memory.
std::vector<Group> OwnGroups(const std::string& root) {
  std::vector<Group> groups;
  // Lines "hierarchy:controllers:path"; v2 is "0::/path". Inside a container the path may be one of
  // the host's that is not visible here: the way up then still ends at the mount point.
  std::istringstream lines(ReadText(root + "/proc/self/cgroup").value_or("0::/"));
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    std::string path = line.substr(second + 1);
    while (path.ends_with('/')) path.pop_back();
    if (controllers == ",,") {
      groups.push_back({root + "/sys/fs/cgroup", path, kV2});
      groups.push_back({root + "/sys/fs/cgroup/unified", path, kV2});  // hybrid set-ups
    } else if (controllers.find(",memory,") != std::string::npos) {
      groups.push_back({root + "/sys/fs/cgroup/memory", path, kV1});
    }
  }
  return groups;
}

// Makes a group's path its parent's; false at the top.
bool GoUp(std::string* path) {
  if (path->empty()) return false;
  path->resize(path->find_last_of('/') == std::string::npos ? 0 : path->find_last_of('/'));
  return true;
}

// Walks from `mount` + `group` up to `mount` and keeps the tightest of what it finds.
void WalkUp(const std::string& mount, std::string group, const GroupFiles& files,
            MemoryLimits& out) {
  do {
    const std::string folder = mount + group + "/";
    for (const char* name : files.limits) {
      const auto limit = ReadNumber(folder + name);
      // v1 writes a number near 2^63 for "none".
      if (!limit || *limit >= uint64_t{1} << 60) continue;
      const uint64_t usage = ReadNumber(folder + files.usage).value_or(0);
      uint64_t cache = 0;
      if (const auto stat = ReadText(folder + "memory.stat")) {
        for (const char* key : files.cache_keys) cache += ReadField(*stat, key).value_or(0);
      }
      const uint64_t left = Minus(*limit, Minus(usage, cache));
      out.cgroup_limit = std::min(out.cgroup_limit.value_or(*limit), *limit);
      out.cgroup_available = std::min(out.cgroup_available.value_or(left), left);
    }
  } while (GoUp(&group));
}

}  // namespace

uint64_t MemoryLimits::total() const {
  uint64_t total = machine_total != 0 ? machine_total : std::numeric_limits<uint64_t>::max();
  return std::min(total, cgroup_limit.value_or(total));
}

uint64_t MemoryLimits::available() const {
  const uint64_t available =
      machine_available != 0 ? machine_available : std::numeric_limits<uint64_t>::max();
  return std::min({available, cgroup_available.value_or(available), total()});
}

MemoryLimits ReadMemoryLimits(const std::string& root) {
  MemoryLimits limits;
  if (const auto meminfo = ReadText(root + "/proc/meminfo")) {
    limits.machine_total = ReadField(*meminfo, "MemTotal").value_or(0) * 1024;
    limits.machine_available = ReadField(*meminfo, "MemAvailable").value_or(0) * 1024;
  }
  for (const Group& group : OwnGroups(root)) {
    WalkUp(group.mount, group.path, group.files, limits);
  }
  return limits;
}

std::optional<uint64_t> ReadCgroupPeak(const std::string& root) {
  for (const Group& group : OwnGroups(root)) {
    // A group that is not visible here is, in a container, what the mount point stands for.
    std::string path = group.path;
    do {
      if (const auto peak = ReadNumber(group.mount + path + "/" + group.files.peak)) return peak;
      // The group is there and does not count: those above it count others as well.
      if (ReadText(group.mount + path + "/cgroup.procs")) break;
    } while (GoUp(&path));
  }
  return std::nullopt;
}

uint64_t MemoryBudgetFromText(const std::string& text, const MemoryLimits& limits) {
  if (text == "min") return 0;
  if (text == "all") return limits.available();
  if (text != "auto") return ParseSize(text, "--memory");
  const uint64_t available = limits.available();
  const uint64_t margin = std::clamp(available / 10, uint64_t{256} << 20, uint64_t{4} << 30);
  return Minus(available, margin);
}

}  // namespace moewe
