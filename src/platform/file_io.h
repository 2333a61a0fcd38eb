// Small pieces of POSIX file work with moewe's errors.
#ifndef MOEWE_PLATFORM_FILE_IO_H_
#define MOEWE_PLATFORM_FILE_IO_H_

#include <cstdint>
#include <functional>
#include <optional>
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

// Gives the file this size; what is added reads as zeros.
void ResizeFile(int fd, uint64_t size, const std::string& path);

// Asks the file system for space up to `size`, so that a full disk shows at once. False where the
// file system can't reserve; Error{kNoSpace} if there is not that much.
bool ReserveSpace(int fd, uint64_t size, const std::string& path);

// Throws Error{kNoSpace}, with both sizes, if the file that `fd` is cannot grow to `size`: its
// file system has not that much left, or the process may not write files of that size.
void CheckSpace(int fd, uint64_t size, const std::string& path);

// Opens `path` to write it alone: creates it if it is not there and locks it until the descriptor
// is closed. Nothing if another process has it locked. What it holds is kept; a symbolic link is
// not followed (Error{kIo}).
std::optional<FileDescriptor> OpenLocked(const std::string& path);

// A file that would grow beyond the process's limit becomes Error{kNoSpace} of the write instead of
// a signal that ends the process. For main().
void IgnoreFileSizeSignal();

// fsync. Throws on failure, because then what was written may not be there.
void SyncFile(int fd, const std::string& path);

// Renames and syncs the folder, so that the new name survives a power cut.
void RenameAndSync(const std::string& from, const std::string& to);

// A whole file that may be read at once (configs, templates). Throws Error{kNotFound, kIo},
// Error{kBounds} if it is larger than `limit`.
std::vector<uint8_t> ReadWholeFile(const std::string& path, uint64_t limit);

// What changes something on disk, for tests of failures.
enum class FileOperation { kWrite, kResize, kReserve, kSync, kRename };

// Called before each of them with the bytes of a write; may lower those (a short write). Another
// value than 0 is the errno that the operation fails with. Any thread.
using FileFault = std::function<int(FileOperation operation, size_t* bytes)>;

// From now on `fault` decides; empty = everything works. Not while other threads write.
void SetFileFaultForTest(FileFault fault);

}  // namespace moewe

#endif  // MOEWE_PLATFORM_FILE_IO_H_
