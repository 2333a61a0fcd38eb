#include "cli/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "moewe/error.h"
#include "platform/file_io.h"

namespace moewe::cli {

void HoldStandardStreams() {
  // Opened the wrong way round: reading stdin and writing stdout fail. open() gives the lowest free
  // number, which is the one that is missing.
  for (const auto& [number, mode] :
       {std::pair{STDIN_FILENO, O_WRONLY}, {STDOUT_FILENO, O_RDONLY}, {STDERR_FILENO, O_WRONLY}}) {
    if (fcntl(number, F_GETFD) == -1 && errno == EBADF) open("/dev/null", mode);
  }
}

void FinishStdout() {
  const bool lost_before = std::ferror(stdout) != 0;
  errno = 0;
  if (std::fflush(stdout) != 0) ThrowErrno("cannot write", "stdout");
  if (lost_before) throw Error(ErrorCode::kIo, "cannot write: output was lost", {"stdout", ""});
}

}  // namespace moewe::cli
