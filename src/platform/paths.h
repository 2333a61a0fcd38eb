// Questions about paths, with moewe's errors: what can't be answered (no permission, a loop of
// links, a name that is too long) names the path instead of passing for "no".
#ifndef MOEWE_PLATFORM_PATHS_H_
#define MOEWE_PLATFORM_PATHS_H_

#include <cstdint>
#include <string>

namespace moewe {

// False for what is not there; links are followed. Throw Error{kIo} where the system can't tell.
bool PathExists(const std::string& path);
bool IsFolder(const std::string& path);
bool IsRegularFile(const std::string& path);

// Bytes of a file. Throws Error{kNotFound, kIo}.
uint64_t FileSize(const std::string& path);

}  // namespace moewe

#endif  // MOEWE_PLATFORM_PATHS_H_
