#include "platform/paths.h"

#include <sys/stat.h>

#include <cerrno>

#include "platform/file_io.h"

namespace moewe {
namespace {

// False for what is not there.
bool Status(const std::string& path, struct stat* status) {
  if (stat(path.c_str(), status) == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  ThrowErrno("cannot look at", path);
}

}  // namespace

bool PathExists(const std::string& path) {
  struct stat status = {};
  return Status(path, &status);
}

bool IsFolder(const std::string& path) {
  struct stat status = {};
  return Status(path, &status) && S_ISDIR(status.st_mode);
}

bool IsRegularFile(const std::string& path) {
  struct stat status = {};
  return Status(path, &status) && S_ISREG(status.st_mode);
}

uint64_t FileSize(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) ThrowErrno("cannot look at", path);
  return static_cast<uint64_t>(status.st_size);
}

}  // namespace moewe
