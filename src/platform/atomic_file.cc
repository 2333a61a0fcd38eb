#include "platform/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "base/bytes_of.h"
#include "base/function_ref.h"
#include "platform/write_target.h"

namespace moewe {
namespace {

constexpr size_t kBufferSize = 256 * 1024;

std::string NamelessPath(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

// A file without a name in the folder of `target`, which vanishes with this process, or nothing
// where there is no such thing.
FileDescriptor OpenNameless(const std::string& target) {
#ifdef O_TMPFILE
  const size_t slash = target.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "." : target.substr(0, slash + 1);
  const int fd = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
  if (fd >= 0) {
    FileDescriptor file(fd);
    if (access(NamelessPath(fd).c_str(), F_OK) == 0) return file;  // it can get a name later
  }
#endif
  return FileDescriptor();
}

// Tries names beside `target` until `create` makes one of them.
std::string CreateBeside(const std::string& target,
                         FunctionRef<bool(const std::string& name)> create) {
  const std::string stem = target + ".tmp." + std::to_string(getpid());
  std::string name = stem;
  for (int i = 1; !create(name); ++i) name = stem + "." + std::to_string(i);
  return name;
}

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
  target_ = BehindLinks(path_);
  if (file_ = OpenNameless(target_); !file_.is_open()) {
    temporary_ = CreateBeside(target_, [&](const std::string& name) {
      std::optional<FileDescriptor> file = CreateNew(name);
      if (file) file_ = std::move(*file);
      return file.has_value();
    });
  }
  // What is replaced keeps its permissions.
  if (exists && fchmod(file_.get(), status.st_mode & 07777) != 0) {
    const int number = errno;
    if (!temporary_.empty()) unlink(temporary_.c_str());  // no destructor will run
    errno = number;
    ThrowErrno("cannot set the permissions of the file for", path_);
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

void AtomicFile::Write(std::string_view text) { Write(BytesOf(text)); }

void AtomicFile::Commit() {
  Flush();
  if (target_.empty()) return;
  SyncFile(file_.get(), path_);
  if (temporary_.empty()) {
    const std::string nameless = NamelessPath(file_.get());
    temporary_ = CreateBeside(target_, [&](const std::string& name) {
      if (linkat(AT_FDCWD, nameless.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
        return true;
      }
      if (errno != EEXIST) ThrowErrno("cannot create", name);
      return false;
    });
  }
  file_.Close();
  RenameAndSync(temporary_, target_);
  temporary_.clear();
}

void AtomicFile::Flush() {
  WriteAll(file_.get(), buffer_, path_);
  buffer_.clear();
}

}  // namespace moewe
