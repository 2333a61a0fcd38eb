// "<name>.partial": what a model file is written into before it gets its name, with a journal of
// what it holds beside it.
#ifndef MOEWE_FORMATS_PARTIAL_FILE_H_
#define MOEWE_FORMATS_PARTIAL_FILE_H_

#include <string>

#include "platform/file_io.h"

namespace moewe::formats {

struct PartialFile {
  FileDescriptor file;     // locked: nobody else writes to the same destination
  bool resumable = false;  // it holds what an earlier run wrote
};

// Opens `partial` to write it, what it holds is kept. `target` is the file that it will become,
// `dst` what the user calls that. Throws Error{kIo} if another process is writing it, Error{kUsage}
// if `target` is there and no regular file, or if `partial` or `journal` is a file of another kind:
// it may be the user's.
PartialFile OpenPartial(const std::string& dst, const std::string& target,
                        const std::string& partial, const std::string& journal);

}  // namespace moewe::formats

#endif  // MOEWE_FORMATS_PARTIAL_FILE_H_
