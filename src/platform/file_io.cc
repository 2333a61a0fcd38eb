#include "platform/file_io.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/size.h"

namespace moewe {
namespace {

// Linux writes at most 2^31 - 4096 bytes a call.
constexpr size_t kLargestWrite = size_t{1} << 30;

FileFault g_fault;

// Whether the operation may happen; if not, errno says why.
bool Allowed(FileOperation operation, size_t* bytes = nullptr) {
  if (!g_fault) return true;
  size_t unused = 0;
  const int number = g_fault(operation, bytes != nullptr ? bytes : &unused);
  if (number != 0) errno = number;
  return number == 0;
}

}  // namespace

void ThrowErrno(std::string_view what, const std::string& path) {
  const int number = errno;
  ErrorCode code = ErrorCode::kIo;
  if (number == ENOENT || number == ENOTDIR) code = ErrorCode::kNotFound;
  if (number == ENOSPC || number == EDQUOT || number == EFBIG) code = ErrorCode::kNoSpace;
  throw Error(code, std::string(what) + ": " + std::strerror(number), {path, ""});
}

FileDescriptor FileDescriptor::OpenForReading(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) ThrowErrno("cannot open", path);
  return FileDescriptor(fd);
}

FileDescriptor FileDescriptor::OpenForWriting(const std::string& path, bool truncate) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | (truncate ? O_TRUNC : 0), 0666);
  if (fd < 0) ThrowErrno("cannot create", path);
  return FileDescriptor(fd);
}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    Close();
    fd_ = other.fd_;
    other.fd_ = -1;
  }
  return *this;
}

void FileDescriptor::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

void WriteAt(int fd, uint64_t offset, Bytes bytes, const std::string& path) {
  while (!bytes.empty()) {
    size_t size = std::min(bytes.size(), kLargestWrite);
    const ssize_t written = Allowed(FileOperation::kWrite, &size)
                                ? pwrite(fd, bytes.data(), size, static_cast<off_t>(offset))
                                : -1;
    if (written < 0) {
      if (errno == EINTR) continue;
      ThrowErrno("cannot write", path);
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
}

void WriteAll(int fd, Bytes bytes, const std::string& path) {
  while (!bytes.empty()) {
    size_t size = std::min(bytes.size(), kLargestWrite);
    const ssize_t written =
        Allowed(FileOperation::kWrite, &size) ? write(fd, bytes.data(), size) : -1;
    if (written < 0) {
      if (errno == EINTR) continue;
      ThrowErrno("cannot write", path);
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void ResizeFile(int fd, uint64_t size, const std::string& path) {
  if (!Allowed(FileOperation::kResize) || ftruncate(fd, static_cast<off_t>(size)) != 0) {
    ThrowErrno("cannot set the size of", path);
  }
}

bool ReserveSpace(int fd, uint64_t size, const std::string& path) {
  if (size == 0) return true;
  if (Allowed(FileOperation::kReserve) && fallocate(fd, 0, 0, static_cast<off_t>(size)) == 0) {
    return true;
  }
  if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL) return false;
  ThrowErrno(fmt::format("cannot reserve {}", FormatSize(size)), path);
}

void CheckSpace(int fd, uint64_t size, const std::string& path) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      size > limit.rlim_cur) {
    throw Error(ErrorCode::kNoSpace,
                fmt::format("the file takes {} ({} bytes); this process may write files of at "
                            "most {} bytes",
                            FormatSize(size), size, limit.rlim_cur),
                {path, ""});
  }
  struct statvfs system = {};
  struct stat status = {};
  if (fstatvfs(fd, &system) != 0 || fstat(fd, &status) != 0) return;  // writing will tell
  const uint64_t free = uint64_t{system.f_bavail} * system.f_frsize;
  const uint64_t allocated = static_cast<uint64_t>(status.st_blocks) * 512;
  if (size > allocated && size - allocated > free) {
    throw Error(ErrorCode::kNoSpace,
                fmt::format("the file takes {} ({} bytes); {} ({} bytes) are free on its disk",
                            FormatSize(size), size, FormatSize(free), free),
                {path, ""});
  }
}

std::optional<FileDescriptor> OpenLocked(const std::string& path) {
  for (;;) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) ThrowErrno("cannot create", path);
    FileDescriptor file(fd);
    if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return std::nullopt;
      if (errno == EINTR) continue;
      return file;  // a file system without locks
    }
    // The one who had it may have renamed or removed it in between.
    struct stat mine = {};
    struct stat named = {};
    if (fstat(file.get(), &mine) != 0) ThrowErrno("cannot read", path);
    if (stat(path.c_str(), &named) == 0 && mine.st_dev == named.st_dev &&
        mine.st_ino == named.st_ino) {
      return file;
    }
  }
}

void IgnoreFileSizeSignal() { std::signal(SIGXFSZ, SIG_IGN); }

void SetFileFaultForTest(FileFault fault) { g_fault = std::move(fault); }

void SyncFile(int fd, const std::string& path) {
  // Pipes and terminals can't be synced and need not be.
  if ((!Allowed(FileOperation::kSync) || fsync(fd) != 0) && errno != EINVAL && errno != EROFS)
    ThrowErrno("cannot sync", path);
}

void RenameAndSync(const std::string& from, const std::string& to) {
  if (!Allowed(FileOperation::kRename) || std::rename(from.c_str(), to.c_str()) != 0)
    ThrowErrno("cannot rename to", to);
  std::string folder = std::filesystem::path(to).parent_path().string();
  if (folder.empty()) folder = ".";
  const FileDescriptor directory = FileDescriptor::OpenForReading(folder);
  SyncFile(directory.get(), folder);
}

std::vector<uint8_t> ReadWholeFile(const std::string& path, uint64_t limit) {
  const FileDescriptor file = FileDescriptor::OpenForReading(path);
  struct stat status = {};
  if (fstat(file.get(), &status) != 0) ThrowErrno("cannot read", path);
  std::vector<uint8_t> bytes;
  if (S_ISREG(status.st_mode)) {
    bytes.reserve(
        static_cast<size_t>(std::min<uint64_t>(static_cast<uint64_t>(status.st_size), limit)));
  }
  uint8_t buffer[65536];
  for (;;) {
    const ssize_t got = read(file.get(), buffer, sizeof(buffer));
    if (got < 0) {
      if (errno == EINTR) continue;
      ThrowErrno("cannot read", path);
    }
    if (got == 0) return bytes;
    if (bytes.size() + static_cast<size_t>(got) > limit) {
      throw Error(ErrorCode::kBounds,
                  "is larger than the " + std::to_string(limit) + " bytes such a file may have",
                  {path, ""});
    }
    bytes.insert(bytes.end(), buffer, buffer + got);
  }
}

}  // namespace moewe
