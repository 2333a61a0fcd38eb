#include "platform/disk_files.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "platform/disk_pages.h"
#include "platform/disk_reader.h"
#include "platform/page_cache.h"

namespace moewe {
namespace {

constexpr uint64_t kDirectPiece = uint64_t{1} << 30;  // a call moves less than 2 GiB
constexpr uint64_t kBufferedPiece = uint64_t{2} << 20;

// Reads one page as demand reads will: a multiple of kDiskAlignment and of nothing larger, in the
// file and in memory. Empty if that is direct I/O; else why not.
std::string WhyNotDirect(int fd, uint64_t size) {
  // Newer kernels open files in memory with O_DIRECT all the same.
  struct statfs system = {};
  if (fstatfs(fd, &system) == 0 && (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC)) {
    return "its file system is memory";
  }
  constexpr size_t kCoarser = 4 * kDiskAlignment;
  const DiskMemory memory = AllocateDiskMemory(kCoarser, kCoarser);
  if (memory == nullptr) return "no memory to try direct I/O";
  uint8_t* into = memory.get() + kDiskAlignment;
  const uint64_t offset = size > kDiskAlignment ? kDiskAlignment : 0;
  const std::optional<uint64_t> before = CachedBytes(fd, offset, kDiskAlignment);
  ssize_t came = 0;
  do {
    came = pread(fd, into, kDiskAlignment, static_cast<off_t>(offset));
  } while (came < 0 && errno == EINTR);
  if (came < 0) return std::string("direct I/O failed: ") + std::strerror(errno);
  if (came == 0 && size != 0) return "direct I/O read nothing";
  // Some file systems take the flag and read through the cache (compressed files, for example).
  const std::optional<uint64_t> after = CachedBytes(fd, offset, kDiskAlignment);
  if (before == uint64_t{0} && after && *after != 0)
    return "its file system reads through the cache";
  return "";
}

DiskFile OpenOne(const std::string& path, bool direct, std::string* why_not) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) ThrowErrno("cannot open", path);
  if (!S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::kIo, S_ISDIR(status.st_mode) ? "is a folder" : "is not a regular file",
                {path, ""});
  }
  if (direct) {
    DiskFile file{FileDescriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT)), true};
    *why_not = file.descriptor.is_open()
                   ? WhyNotDirect(file.descriptor.get(), static_cast<uint64_t>(status.st_size))
                   : std::string("cannot be opened for direct I/O: ") + std::strerror(errno);
    if (why_not->empty()) return file;
  }
  DiskFile file{FileDescriptor::OpenForReading(path), false};
  posix_fadvise(file.descriptor.get(), 0, 0, POSIX_FADV_RANDOM);
  return file;
}

}  // namespace

uint64_t DiskFile::piece() const { return direct ? kDirectPiece : kBufferedPiece; }

void DiskFile::DropBehind(uint64_t offset, uint64_t bytes) const {
  if (direct || bytes == 0) return;
  // Pages that the range has only a part of would stay.
  const uint64_t end = (offset + bytes + kDiskAlignment - 1) / kDiskAlignment * kDiskAlignment;
  posix_fadvise(descriptor.get(), static_cast<off_t>(offset), static_cast<off_t>(end - offset),
                POSIX_FADV_DONTNEED);
}

DiskFiles OpenDiskFiles(std::span<const std::string> paths, bool direct) {
  DiskFiles out;
  out.direct = direct && !paths.empty();
  for (const std::string& path : paths) {
    std::string why_not;
    out.files.push_back(OpenOne(path, direct, &why_not));
    if (out.files.back().direct) continue;
    out.direct = false;
    if (!why_not.empty() && out.fallback.empty()) {
      out.fallback = path + ": " + why_not + "; read through the page cache";
    }
  }
  return out;
}

}  // namespace moewe
