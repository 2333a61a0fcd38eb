#include "platform/disk_reader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "platform/disk_devices.h"
#include "platform/disk_methods.h"
#include "platform/paths.h"
#include "platform/split_reader.h"

namespace moewe {
namespace {

using Method = DiskOptions::Method;

constexpr uint32_t kDefaultDepth = 8;
// Below this, reading everything takes less than measuring how.
constexpr uint64_t kWorthProbing = uint64_t{256} << 20;
constexpr uint64_t kProbedBytes = uint64_t{1} << 20;
constexpr double kProbeSeconds = 0.3;

// What is known about the device of `files`, or worth being found out.
std::optional<DiskHabit> Habit(std::span<const std::string> files, bool direct) {
  if (files.empty()) return std::nullopt;
  const auto largest = std::max_element(
      files.begin(), files.end(),
      [](const std::string& a, const std::string& b) { return FileSize(a) < FileSize(b); });
  const std::optional<DiskHabit> remembered = RememberedHabit(DiskDevice(*largest));
  if (remembered && remembered->direct == direct) return remembered;
  if (!direct || FileSize(*largest) < kWorthProbing) return std::nullopt;
  const DiskSpeed speed = ProbeDisk(*largest, kProbedBytes, kProbeSeconds);
  return DiskHabit{speed.method, speed.depth, speed.direct};
}

std::unique_ptr<DiskReader> MakeWholeReader(DiskFiles files, Method method, uint32_t depth,
                                            std::span<uint8_t> memory) {
  if (method == Method::kUring || (method == Method::kAuto && files.direct)) {
    std::string why_not;
    if (auto reader = MakeUringReader(&files, depth, memory, &why_not)) return reader;
    if (!files.fallback.empty()) files.fallback += "; ";
    files.fallback += why_not + "; read with pread";
  }
  return MakePreadReader(std::move(files), depth);
}

}  // namespace

std::unique_ptr<DiskReader> MakeDiskReader(DiskFiles files, Method method, uint32_t depth,
                                           std::span<uint8_t> memory) {
  std::unique_ptr<DiskReader> reader = MakeWholeReader(std::move(files), method, depth, memory);
  // What comes through the page cache is copied by a CPU, not by the disk.
  if (!reader->info().direct) return reader;
  return SplitReads(std::move(reader), kDiskPiece);
}

std::unique_ptr<DiskReader> OpenDiskReader(std::span<const std::string> files,
                                           const DiskOptions& options) {
  DiskFiles opened = OpenDiskFiles(files, options.direct);
  Method method = options.method;
  uint32_t depth = options.depth;
  if (depth == 0) {
    const std::optional<DiskHabit> habit = Habit(files, opened.direct);
    depth = habit ? habit->depth : kDefaultDepth;
    if (habit && habit->method == "pread" && method == Method::kAuto) method = Method::kPread;
  }
  return MakeDiskReader(std::move(opened), method, std::min(depth, kMostDiskDepth), options.memory);
}

}  // namespace moewe
