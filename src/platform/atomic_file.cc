#include "platform/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

namespace moewe {
namespace {

constexpr size_t kBufferSize = 256 * 1024;

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  if (path_ == "-") {
    file_ = FileDescriptor(dup(STDOUT_FILENO));
    if (!file_.is_open()) ThrowErrno("cannot write", "standard output");
    return;
  }
  struct stat status = {};
  const bool exists = stat(path_.c_str(), &status) == 0;
  if (exists && !S_ISREG(status.st_mode)) {
    if (S_ISDIR(status.st_mode)) throw Error(ErrorCode::kIo, "is a folder", {path_, ""});
    const int fd = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) ThrowErrno("cannot write", path_);
    file_ = FileDescriptor(fd);
    return;
  }
  const std::string temporary = path_ + ".tmp." + std::to_string(getpid());
  file_ = FileDescriptor::OpenForWriting(temporary, /*truncate=*/true);
  temporary_ = temporary;
  // What is replaced keeps its permissions.
  if (exists && fchmod(file_.get(), status.st_mode & 07777) != 0) {
    ThrowErrno("cannot set the permissions of", temporary);
  }
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void AtomicFile::Write(Bytes bytes) {
  if (buffer_.size() + bytes.size() > kBufferSize) Flush();
  if (bytes.size() >= kBufferSize) {
    WriteAll(file_.get(), bytes, path_);
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
}

void AtomicFile::Write(std::string_view text) {
  Write(Bytes(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

void AtomicFile::Commit() {
  Flush();
  if (temporary_.empty()) return;
  SyncFile(file_.get(), path_);
  file_.Close();
  RenameAndSync(temporary_, path_);
  temporary_.clear();
}

void AtomicFile::Flush() {
  WriteAll(file_.get(), buffer_, path_);
  buffer_.clear();
}

}  // namespace moewe
