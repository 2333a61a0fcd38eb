#include "cli/change_file.h"

#include <filesystem>
#include <system_error>

#include "base/log.h"
#include "formats/signature.h"
#include "moewe/error.h"

namespace moewe::cli {
namespace {

constexpr auto kSayWaiting = [](const std::string& file) {
  LogInfo("waiting for another process that changes " + file);
};

}  // namespace

void CheckIsFile(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return;
  throw Error(ErrorCode::kUnsupported, "only .cmf files have masks and skills", {path, ""});
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
  std::error_code ignored;
  if (std::filesystem::exists(signature, ignored)) {
    LogWarning("the signature " + signature + " is of the file as it was; sign again");
  }
}

}  // namespace moewe::cli
