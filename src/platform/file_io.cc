#include "platform/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace moewe {
namespace {

// Linux writes at most 2^31 - 4096 bytes a call.
constexpr size_t kLargestWrite = size_t{1} << 30;

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
    const ssize_t written =
        pwrite(fd, bytes.data(), std::min(bytes.size(), kLargestWrite), static_cast<off_t>(offset));
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
    const ssize_t written = write(fd, bytes.data(), std::min(bytes.size(), kLargestWrite));
    if (written < 0) {
      if (errno == EINTR) continue;
      ThrowErrno("cannot write", path);
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void SyncFile(int fd, const std::string& path) {
  // Pipes and terminals can't be synced and need not be.
  if (fsync(fd) != 0 && errno != EINVAL && errno != EROFS) ThrowErrno("cannot sync", path);
}

void RenameAndSync(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) ThrowErrno("cannot rename to", to);
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
