// A file that one process at a time may change.
#ifndef MOEWE_PLATFORM_FILE_LOCK_H_
#define MOEWE_PLATFORM_FILE_LOCK_H_

#include <string>

#include "base/function_ref.h"
#include "platform/file_io.h"

namespace moewe {

// An exclusive advisory lock (flock) on an existing regular file, held until destruction or the
// end of the process. Everything that changes a model file in place, or reads it to replace it by
// a changed one, takes it before it reads; readers need none. Two locks of one process on one file
// exclude each other, too. A file system without locks gives none, in silence.
class FileLock {
 public:
  enum class Access { kRead, kWrite };

  // Waits for whoever has it; `waiting` is called once before that. Throws Error{kNotFound, kIo}.
  FileLock(const std::string& path, Access access, FunctionRef<void()> waiting);

  int fd() const { return file_.get(); }
  const std::string& path() const { return path_; }

  // Throws Error{kIo} if the path does not name the locked file any more: somebody who does not
  // lock has put another file in its place, and a change of this one would be lost.
  void CheckStillNamed() const;

 private:
  bool StillNamed() const;

  std::string path_;
  FileDescriptor file_;
};

}  // namespace moewe

#endif  // MOEWE_PLATFORM_FILE_LOCK_H_
