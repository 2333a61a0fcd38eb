// An output file that appears under its name only when it is complete.
#ifndef MOEWE_PLATFORM_ATOMIC_FILE_H_
#define MOEWE_PLATFORM_ATOMIC_FILE_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/byte_reader.h"
#include "platform/file_io.h"

namespace moewe {

// Bytes go to a file without a name (where the file system has none: to "<path>.tmp.<pid>") beside
// the target; Commit syncs and renames it. Ended without Commit, by whatever, nothing remains and
// an older file is untouched; one that is replaced hands on its mode. A symbolic link stays one:
// what it points at is replaced. "-" is stdout, and what is no regular file (a pipe, /dev/null) is
// written directly. One thread.
class AtomicFile {
 public:
  // Throws Error{kNotFound} for a missing folder, Error{kIo}.
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Throws Error{kNoSpace, kIo}.
  void Write(Bytes bytes);
  void Write(std::string_view text);
  void Commit();

 private:
  void Flush();

  std::string path_;       // as asked, for messages
  std::string target_;     // behind links; empty when written directly
  std::string temporary_;  // empty while the file has no name
  FileDescriptor file_;
  std::vector<uint8_t> buffer_;
};

}  // namespace moewe

#endif  // MOEWE_PLATFORM_ATOMIC_FILE_H_
