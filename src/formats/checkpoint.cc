#include "formats/checkpoint.h"

#include "formats/cmf/cmf_file.h"
#include "formats/safetensors/hf_folder.h"
#include "formats/safetensors/safetensors.h"
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

std::unique_ptr<Checkpoint> OpenCheckpoint(const std::string& path) {
  if (IsFolder(path)) return HfFolder::Open(path);
  const std::unique_ptr<MappedFile> file = MappedFile::Open(path);
  const Bytes bytes = file->bytes();
  if (StartsWith(bytes, cmf::kMagic)) return CmfFile::Open(path);
  if (LooksLikeSafetensors(bytes)) return HfFolder::OpenFile(path);
  if (bytes.size() < 8) {
    throw Error(ErrorCode::kBounds,
                "file of " + std::to_string(bytes.size()) + " bytes is too short for a model",
                {path, ""});
  }
  if (StartsWith(bytes, "GGUF")) {
    throw Error(ErrorCode::kUnsupported, "GGUF files can't be read yet", {path, "", 0});
  }
  throw Error(ErrorCode::kInvalidMagic, "neither a CMF nor a safetensors file", {path, "magic", 0});
}

}  // namespace moewe::formats
