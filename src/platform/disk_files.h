// The files of a disk reader, each opened in the best way that was seen to work.
#ifndef MOEWE_PLATFORM_DISK_FILES_H_
#define MOEWE_PLATFORM_DISK_FILES_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "platform/file_io.h"

namespace moewe {

struct DiskFile {
  FileDescriptor descriptor;
  bool direct = false;

  // The most to ask for at once: what a system call takes, or little enough that pages on their way
  // through the cache do not count.
  uint64_t piece() const;
  // Called for what a read brought: pages that it left in the page cache go.
  void DropBehind(uint64_t offset, uint64_t bytes) const;
};

struct DiskFiles {
  std::vector<DiskFile> files;
  bool direct = false;   // all of them
  std::string fallback;  // of the first that is not although it was asked for: name and reason
};

// With `direct`, a file is opened with O_DIRECT if a transfer of one page succeeds and leaves
// nothing in the page cache; else, or without, for reads through the cache without read-ahead.
// Throws Error{kNotFound, kIo}; what is no regular file is kIo.
DiskFiles OpenDiskFiles(std::span<const std::string> paths, bool direct);

}  // namespace moewe

#endif  // MOEWE_PLATFORM_DISK_FILES_H_
