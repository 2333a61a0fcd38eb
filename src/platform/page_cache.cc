#include "platform/page_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "platform/disk_reader.h"
#include "platform/file_io.h"

namespace moewe {

std::optional<uint64_t> CachedBytes(int fd, uint64_t offset, uint64_t bytes) {
  if (bytes == 0) return 0;
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  void* memory = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (memory == MAP_FAILED) return std::nullopt;
  std::vector<unsigned char> resident((bytes + page - 1) / page);
  const bool known = mincore(memory, bytes, resident.data()) == 0;
  munmap(memory, bytes);
  if (!known) return std::nullopt;
  const auto count =
      std::count_if(resident.begin(), resident.end(), [](unsigned char r) { return (r & 1) != 0; });
  return static_cast<uint64_t>(count) * page;
}

void DropFromPageCache(const std::string& file) {
  const FileDescriptor descriptor(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!descriptor.is_open()) return;
  // Only pages that are on disk can go.
  fdatasync(descriptor.get());
  posix_fadvise(descriptor.get(), 0, 0, POSIX_FADV_DONTNEED);
}

}  // namespace moewe
