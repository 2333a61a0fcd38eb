#include "platform/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>

namespace moewe {

FileLock::FileLock(const std::string& path, Access access, FunctionRef<void()> waiting)
    : path_(path) {
  bool told = false;
  for (;;) {
    const int flags = (access == Access::kWrite ? O_RDWR : O_RDONLY) | O_NONBLOCK | O_CLOEXEC;
    const int fd = open(path.c_str(), flags);
    if (fd < 0) ThrowErrno("cannot open", path);
    file_ = FileDescriptor(fd);
    struct stat status = {};
    if (fstat(fd, &status) != 0) ThrowErrno("cannot read", path);
    if (!S_ISREG(status.st_mode)) throw Error(ErrorCode::kIo, "is no regular file", {path, ""});
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      if (!told) waiting();
      told = true;
      while (flock(fd, LOCK_EX) != 0 && errno == EINTR) {
      }
    }
    // Whoever had it may have put another file in its place.
    if (StillNamed()) return;
  }
}

bool FileLock::StillNamed() const {
  struct stat mine = {};
  struct stat named = {};
  if (fstat(file_.get(), &mine) != 0) ThrowErrno("cannot read", path_);
  if (stat(path_.c_str(), &named) != 0) ThrowErrno("cannot open", path_);
  return mine.st_dev == named.st_dev && mine.st_ino == named.st_ino;
}

void FileLock::CheckStillNamed() const {
  if (StillNamed()) return;
  throw Error(ErrorCode::kIo, "was replaced by another file in the meantime", {path_, ""});
}

}  // namespace moewe
