// Small pieces of POSIX file work with moewe's errors.
#ifndef MOEWE_PLATFORM_FILE_IO_H_
#define MOEWE_PLATFORM_FILE_IO_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_reader.h"

namespace moewe {

// Throws for the current errno: kNotFound for a missing file or folder, kNoSpace for a full disk or
// quota, kIo otherwise.
[[noreturn]] void ThrowErrno(std::string_view what, const std::string& path);

// Owns an open file. Movable; closes without reporting (call Sync first where it matters).
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  static FileDescriptor OpenForReading(const std::string& path);
  // Creates the file (mode 0666 less the umask) or, if `truncate` is not set, keeps what is there.
  static FileDescriptor OpenForWriting(const std::string& path, bool truncate);
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor() { Close(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  void Close();

 private:
  int fd_ = -1;
};

// All of `bytes` at `offset`. Throws Error{kNoSpace, kIo}; `path` is for the message. Thread-safe
// for distinct ranges.
void WriteAt(int fd, uint64_t offset, Bytes bytes, const std::string& path);

// All of `bytes` at the file's position (also for pipes).
void WriteAll(int fd, Bytes bytes, const std::string& path);

// fsync. Throws on failure, because then what was written may not be there.
void SyncFile(int fd, const std::string& path);

// Renames and syncs the folder, so that the new name survives a power cut.
void RenameAndSync(const std::string& from, const std::string& to);

// A whole file that may be read at once (configs, templates). Throws Error{kNotFound, kIo},
// Error{kBounds} if it is larger than `limit`.
std::vector<uint8_t> ReadWholeFile(const std::string& path, uint64_t limit);

}  // namespace moewe

#endif  // MOEWE_PLATFORM_FILE_IO_H_
