#include "convert/destination.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "base/bytes_of.h"
#include "base/hash64.h"
#include "formats/cmf/cmf_file.h"
#include "formats/cmf/writer.h"
#include "moewe/error.h"
#include "platform/write_target.h"

namespace moewe::convert {
namespace {

namespace fs = std::filesystem;

std::optional<struct stat> StatusOf(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return std::nullopt;
  return status;
}

bool SameFile(const std::string& a, const std::string& b) {
  const auto first = StatusOf(a);
  const auto second = StatusOf(b);
  return first && second && first->st_dev == second->st_dev && first->st_ino == second->st_ino;
}

fs::path FolderOf(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

void Update(Hash64* hash, const std::string& text) { hash->Update(BytesOf(text)); }

}  // namespace

void CheckDestination(const formats::Checkpoint& source, const std::string& dst) {
  if (dst == "-") {
    throw Error(ErrorCode::kUsage, "a CMF file can't be written to standard output", {dst, ""});
  }
  const std::string target = BehindLinks(dst);
  for (const std::string& file : source.files()) {
    for (const std::string& written : {target, target + ".partial", target + ".partial.journal"}) {
      if (!SameFile(file, written)) continue;
      throw Error(ErrorCode::kUsage,
                  written == target
                      ? "SRC and DST are the same file"
                      : fmt::format("SRC is the file that writing DST goes through ({})", written),
                  {dst, ""});
    }
  }
  if (source.kind() != formats::CheckpointKind::kHuggingFace) return;
  std::error_code problem;
  for (const std::string& file : source.files()) {
    if (!fs::equivalent(FolderOf(file), FolderOf(target), problem) || problem) continue;
    if (source.config().is_null()) continue;  // one file alone, not a model folder
    throw Error(ErrorCode::kUsage, "DST lies in the folder of SRC; choose another place",
                {dst, ""});
  }
}

std::string SourceIdentity(const formats::Checkpoint& source) {
  std::string identity =
      fmt::format("moewe {}", MOEWE_VERSION);  // another one may encode otherwise
  for (const std::string& file : source.files()) {
    const auto status = StatusOf(file);
    if (!status) continue;
    identity += fmt::format("|{} {}.{:09}", status->st_size, status->st_mtim.tv_sec,
                            status->st_mtim.tv_nsec);
  }
  Hash64 hash;
  Update(&hash,
         source.config().dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  for (const formats::TensorView& tensor : source.tensors()) {
    Update(&hash,
           fmt::format("|{} {} {} {} {} {} {:x}", tensor.name, static_cast<int>(tensor.dtype),
                       fmt::join(tensor.shape, ","), tensor.file_index, tensor.file_offset,
                       tensor.bytes.size(), tensor.hash));
  }
  return identity + fmt::format("|{:016x}", hash.Digest());
}

}  // namespace moewe::convert
