// What was once measured about a device, in a small file of the user's cache folder:
// $XDG_CACHE_HOME/moewe/disks.json, or ~/.cache/moewe/disks.json. A memory only: where it can't be
// read or written, or holds nonsense, there is none.
#ifndef MOEWE_PLATFORM_DISK_DEVICES_H_
#define MOEWE_PLATFORM_DISK_DEVICES_H_

#include <cstdint>
#include <optional>
#include <string>

namespace moewe {

struct DiskHabit {
  std::string method;  // "io_uring", "pread"
  uint32_t depth = 0;  // 1 ... kMostDiskDepth
  bool direct = false;
};

// A name of the device that the file is on which outlives reboots: its serial number, else its
// kernel name and size. Empty if there is none (network file systems, tmpfs, btrfs).
std::string DiskDevice(const std::string& file);

std::optional<DiskHabit> RememberedHabit(const std::string& device);
void RememberHabit(const std::string& device, const DiskHabit& habit);

}  // namespace moewe

#endif  // MOEWE_PLATFORM_DISK_DEVICES_H_
