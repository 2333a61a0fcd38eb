#include "formats/checkpoint.h"

#include "formats/cmf/cmf_file.h"
#include "formats/safetensors/hf_folder.h"
#include "formats/safetensors/safetensors.h"
#include "formats/smoe/smoe_vault.h"
#include "moewe/error.h"
#include "platform/mapped_file.h"
#include "platform/paths.h"

namespace moewe::formats {
namespace {

bool StartsWith(Bytes bytes, std::string_view magic) {
  return bytes.size() >= magic.size() &&
         std::string_view(reinterpret_cast<const char*>(bytes.data()), magic.size()) == magic;
}

}  // namespace

std::unique_ptr<Checkpoint> OpenCheckpoint(const std::string& path, const std::string& scout) {
  const bool is_folder = IsFolder(path);
  const std::unique_ptr<MappedFile> file = is_folder ? nullptr : MappedFile::Open(path);
  const Bytes bytes = is_folder ? Bytes() : file->bytes();
  if (smoe::LooksLikeVault(bytes)) return SmoeVault::Open(path, scout);
  if (!scout.empty() && (is_folder || StartsWith(bytes, cmf::kMagic))) {
    throw Error(ErrorCode::kUsage, "--scout goes with a .smoe vault", {path, ""});
  }
  if (is_folder) return HfFolder::Open(path);
  if (StartsWith(bytes, cmf::kMagic)) return CmfFile::Open(path);
  if (LooksLikeSafetensors(bytes)) return HfFolder::OpenFile(path);
  if (bytes.size() < 8) {
    throw Error(ErrorCode::kBounds,
                "file of " + std::to_string(bytes.size()) + " bytes is too short for a model",
                {path, "header"});
  }
  if (StartsWith(bytes, "GGUF")) {
    throw Error(ErrorCode::kUnsupported, "GGUF files can't be read yet", {path, "", 0});
  }
  throw Error(ErrorCode::kInvalidMagic, "neither a CMF file, a .smoe vault nor a safetensors file",
              {path, "magic", 0});
}

}  // namespace moewe::formats
