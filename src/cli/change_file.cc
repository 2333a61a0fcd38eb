#include "cli/change_file.h"

#include "base/log.h"
#include "formats/signature.h"
#include "moewe/error.h"
#include "platform/paths.h"

namespace moewe::cli {
namespace {

constexpr auto kSayWaiting = [](const std::string& file) {
  LogInfo("waiting for another process that changes " + file);
};

void CheckIsFile(const std::string& path) {
  if (!IsFolder(path)) return;
  throw Error(ErrorCode::kUnsupported,
              "is a folder, and only .cmf files have masks, skills and counts: convert first",
              {path, ""});
}

}  // namespace

std::unique_ptr<formats::CmfFile> OpenCmf(const std::string& path) {
  CheckIsFile(path);
  return formats::CmfFile::Open(path);
}

formats::LockedCmf OpenToReplace(const std::string& path) {
  CheckIsFile(path);
  return formats::OpenToChange(path, FileLock::Access::kRead, kSayWaiting);
}

std::unique_ptr<formats::CmfAppender> OpenToGrow(const std::string& path) {
  CheckIsFile(path);
  return formats::CmfAppender::Open(path, kSayWaiting);
}

void WarnOfSignature(const std::string& path) {
  const std::string signature = formats::SignaturePath(path);
  try {
    if (!PathExists(signature)) return;
  } catch (const Error&) {
    // The change is made; whether there is a signature can't be told.
    LogWarning("a signature " + signature + " would be of the file as it was; sign again");
    return;
  }
  LogWarning("the signature " + signature + " is of the file as it was; sign again");
}

}  // namespace moewe::cli
