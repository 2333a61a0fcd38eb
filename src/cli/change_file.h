// What the verbs about .cmf files alone (masks, skills, cuts) share: opening them, to look or to
// change, and what they tell their user.
#ifndef MOEWE_CLI_CHANGE_FILE_H_
#define MOEWE_CLI_CHANGE_FILE_H_

#include <memory>
#include <string>

#include "formats/cmf/append.h"

namespace moewe::cli {

// The file, to look at. Throws Error{kUnsupported} if `path` is a folder, and as CmfFile::Open.
std::unique_ptr<formats::CmfFile> OpenCmf(const std::string& path);

// The file to be replaced by a changed one, or to be grown. A line says so if another process
// changes it, which is waited for. Throws as OpenCmf and FileLock.
formats::LockedCmf OpenToReplace(const std::string& path);
std::unique_ptr<formats::CmfAppender> OpenToGrow(const std::string& path);

// A warning if `path` has a signature, which is of the file as it was.
void WarnOfSignature(const std::string& path);

}  // namespace moewe::cli

#endif  // MOEWE_CLI_CHANGE_FILE_H_
