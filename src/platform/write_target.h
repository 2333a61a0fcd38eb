// Which file a name means when it is written, without harm to anything else that lies around.
#ifndef MOEWE_PLATFORM_WRITE_TARGET_H_
#define MOEWE_PLATFORM_WRITE_TARGET_H_

#include <optional>
#include <string>

#include "platform/file_io.h"

namespace moewe {

// The path behind symbolic links at `path` itself (not in its folders): what a file that is
// replaced by a rename must be called, so that a link stays a link. A link to nothing gives the
// name it points at. Throws Error{kIo} for links that go round in a circle.
std::string BehindLinks(const std::string& path);

// A new file, opened to read and write; nothing if the name is taken, also by a symbolic link.
// Throws Error{kNotFound, kIo, kNoSpace}.
std::optional<FileDescriptor> CreateNew(const std::string& path);

// Bytes that an unprivileged process may still write to the file system of `fd`; nothing if that
// can't be told.
std::optional<uint64_t> FreeSpace(int fd);

}  // namespace moewe

#endif  // MOEWE_PLATFORM_WRITE_TARGET_H_
