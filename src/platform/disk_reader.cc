#include "platform/disk_reader.h"

#include <algorithm>

#include "platform/disk_methods.h"

namespace moewe {
namespace {

constexpr uint32_t kDefaultDepth = 4;
constexpr uint32_t kMostDepth = 256;

}  // namespace

std::unique_ptr<DiskReader> OpenDiskReader(std::span<const std::string> files,
                                           const DiskOptions& options) {
  const uint32_t depth = std::min(options.depth == 0 ? kDefaultDepth : options.depth, kMostDepth);
  return MakePreadReader(OpenDiskFiles(files, options.direct), depth);
}

}  // namespace moewe
