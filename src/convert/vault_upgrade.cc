#include "convert/vault_upgrade.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/json.h"
#include "convert/smoe_plan.h"
#include "formats/safetensors/chat_bundle.h"
#include "formats/safetensors/hf_folder.h"
#include "formats/smoe/scout.h"
#include "formats/smoe/smoe_vault.h"
#include "formats/smoe/vault_tables.h"
#include "model/config_smoe.h"
#include "moewe/error.h"
#include "platform/file_io.h"
#include "platform/file_lock.h"
#include "platform/mapped_file.h"

namespace moewe::convert {
namespace {

namespace fs = std::filesystem;
namespace smoe = formats::smoe;

// A config.json and what its folder says about presence.
struct VaultSource {
  Json json;
  std::optional<model::ModelConfig> config;
  bool qk_norm = false;
  bool dense_layer_0 = false;
};

bool HasWeights(const std::string& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors") return true;
  }
  return false;
}

VaultSource ReadSource(const std::string& path) {
  VaultSource source;
  const bool folder = fs::is_directory(path);
  const fs::path file = folder ? fs::path(path) / "config.json" : fs::path(path);
  if (!fs::exists(file)) {
    throw Error(ErrorCode::kNotFound, "there is no such config.json", {file.string(), ""});
  }
  source.json = formats::ReadFolderJson(file.parent_path().string(), file.filename().string());
  source.config = model::ConfigFromHuggingFace(source.json, file.string());
  std::string reason;
  if (!model::ArchBlockHolds(*source.config, &reason)) {
    throw Error(ErrorCode::kUnsupported, fmt::format("the arch block cannot express {}", reason),
                {file.string(), ""});
  }
  if (folder && HasWeights(path)) {
    const auto weights = formats::HfFolder::Open(path);
    source.qk_norm = weights->Find("model.layers.0.self_attn.q_norm.weight") != nullptr;
    source.dense_layer_0 = weights->Find("model.layers.0.mlp.gate_proj.weight") != nullptr;
    return source;
  }
  // Nothing but the config: what is usual for such a model.
  const auto type = source.json.find("model_type");
  source.qk_norm = type != source.json.end() && type->is_string() &&
                   type->get_ref<const std::string&>().starts_with("qwen3");
  const auto dense = source.json.find("first_k_dense_replace");
  source.dense_layer_0 =
      dense != source.json.end() && dense->is_number_unsigned() && dense->get<uint64_t>() > 0;
  return source;
}

template <typename T>
void WriteValue(int fd, uint64_t offset, const T& value, const std::string& path) {
  WriteAt(fd, offset, {reinterpret_cast<const uint8_t*>(&value), sizeof(value)}, path);
  SyncFile(fd, path);
}

// The first slot, or the next one if the block that is in use lies there: it must stay whole until
// the new one is.
uint64_t SlotFor(const smoe::VaultTables& vault, const std::string& path) {
  const uint64_t tables = smoe::TablesEnd(vault.header.total_experts);
  uint64_t slot = smoe::AlignUp(tables, smoe::kArchAlignment);
  const bool in_use =
      vault.header.version == 2 && vault.header.reserved_ext < slot + smoe::kArchSize;
  if (in_use)
    slot = smoe::AlignUp(vault.header.reserved_ext + smoe::kArchSize, smoe::kArchAlignment);
  if (slot + smoe::kArchSize <= vault.header.data_offset) return slot;
  throw Error(
      ErrorCode::kUnsupported,
      fmt::format("no room for the arch block: it would lie at {}, and the blobs begin at {}; "
                  "convert the model again",
                  slot, vault.header.data_offset),
      {path, "header.data_offset"});
}

}  // namespace

UpgradeResult UpgradeVault(const std::string& path, const UpgradeOptions& options) {
  const FileLock lock(path, FileLock::Access::kWrite, [&] {
    if (options.waiting) options.waiting();
  });
  const std::unique_ptr<MappedFile> file = MappedFile::Open(path);
  smoe::VaultTables vault = smoe::ParseVaultTables(file->bytes(), path);
  if (vault.header.version == 2 && !options.force) {
    throw Error(ErrorCode::kUsage, "is a v2 vault already; --force writes its arch block anew",
                {path, "header.version"});
  }
  const std::string scout_path =
      options.scout.empty() ? formats::CompanionsOf(path).scout : options.scout;
  std::optional<smoe::ScoutFile> scout;
  if (fs::exists(scout_path) || !options.scout.empty()) {
    scout = smoe::ScoutFile::Open(scout_path);
  }

  UpgradeResult result;
  if (!options.config.empty()) {
    const VaultSource source = ReadSource(options.config);
    result.arch = ArchBlockOf(*source.config, source.json);
    result.arch.Set(smoe::kHasQkNorm, source.qk_norm);
    result.arch.Set(smoe::kHasDenseLayer0, source.dense_layer_0);
  } else {
    if (!scout) {
      throw Error(ErrorCode::kNotFound,
                  "without --config the constants come from the shapes of the Scout, which is not "
                  "there",
                  {scout_path, ""});
    }
    result.arch = smoe::CheckPair(vault, path, file->bytes(), *scout).arch;
  }
  smoe::VaultTables upgraded = vault;
  upgraded.header.version = 2;
  upgraded.arch = result.arch;
  smoe::CheckArch(result.arch, upgraded.header, path);
  if (scout) {
    result.arch.flags = smoe::CheckPair(upgraded, path, file->bytes(), *scout).arch.flags;
    upgraded.arch = result.arch;
    result.warnings = smoe::CheckPair(upgraded, path, file->bytes(), *scout).warnings;
  } else {
    result.warnings.emplace_back("the Scout is not there: whether it fits was not checked");
  }
  const auto block = smoe::SerializeArch(result.arch);
  const Bytes bytes = file->bytes();
  if (vault.header.version == 2 &&
      std::equal(block.begin(), block.end(), bytes.begin() + vault.header.reserved_ext)) {
    result.offset = vault.header.reserved_ext;
    return result;
  }
  result.offset = SlotFor(vault, path);
  file->Check();
  lock.CheckStillNamed();
  WriteValue(lock.fd(), result.offset, block, path);
  WriteValue(lock.fd(), smoe::kReservedExtOffset, static_cast<uint32_t>(result.offset), path);
  WriteValue(lock.fd(), smoe::kVersionOffset, uint32_t{2}, path);
  return result;
}

}  // namespace moewe::convert
