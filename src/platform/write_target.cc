#include "platform/write_target.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

namespace moewe {

std::string BehindLinks(const std::string& path) {
  constexpr int kMostLinks = 40;  // as Linux has it
  std::string current = path;
  for (int i = 0; i < kMostLinks; ++i) {
    char target[PATH_MAX];
    const ssize_t length = readlink(current.c_str(), target, sizeof(target));
    if (length < 0) return current;
    const std::string next(target, static_cast<size_t>(length));
    const size_t slash = current.find_last_of('/');
    current = next.starts_with('/') || slash == std::string::npos
                  ? next
                  : current.substr(0, slash + 1) + next;
  }
  throw Error(ErrorCode::kIo, "too many symbolic links", {path, ""});
}

std::optional<FileDescriptor> CreateNew(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0 && errno == EEXIST) return std::nullopt;
  if (fd < 0) ThrowErrno("cannot create", path);
  return FileDescriptor(fd);
}

std::optional<uint64_t> FreeSpace(int fd) {
  struct statvfs system = {};
  if (fstatvfs(fd, &system) != 0) return std::nullopt;
  return uint64_t{system.f_bavail} * system.f_frsize;
}

}  // namespace moewe
