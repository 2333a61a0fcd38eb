// A file mapped read-only, whose shrinking is an error of the reader instead of a crash.
//
// Reading a page that the file no longer has raises SIGBUS. The first mapping installs a
// process-wide handler: where the address lies in a mapping of ours, the handler puts a page of
// zeros there, marks the mapping as damaged and lets the reader go on; everything else goes to the
// handler that was there before. So whoever reads bytes of a mapping calls Check() when an
// operation ends and before its result is used.
#ifndef MOEWE_PLATFORM_MAPPED_FILE_H_
#define MOEWE_PLATFORM_MAPPED_FILE_H_

#include <memory>
#include <string>

#include "base/byte_reader.h"

namespace moewe {

// Const methods may be called from any thread, also while others read the bytes. The bytes live as
// long as the object; it must not be destroyed while somebody still reads them.
class MappedFile {
 public:
  // Throws Error{kNotFound} if there is no such file, Error{kIo} if it is no regular file or can't
  // be read. An empty file gives empty bytes.
  static std::unique_ptr<MappedFile> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  Bytes bytes() const { return bytes_; }

  // True once a read met a page that the file has lost; bytes read since then may be zeros.
  bool damaged() const;

  // Throws Error{kIo} if damaged().
  void Check() const;

 private:
  MappedFile(std::string path, Bytes bytes);

  std::string path_;
  Bytes bytes_;
  struct MappedRange* range_ = nullptr;  // in the handler's registry; null for an empty file
};

}  // namespace moewe

#endif  // MOEWE_PLATFORM_MAPPED_FILE_H_
