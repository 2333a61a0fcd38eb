// moewe info: what a model file is, at a glance.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/hash64.h"
#include "base/shown.h"
#include "cli/mask_report.h"
#include "cli/verbs.h"
#include "formats/checkpoint.h"
#include "formats/cmf/cmf_file.h"
#include "formats/smoe/smoe_vault.h"
#include "model/config.h"
#include "platform/paths.h"
#include "quant/codec.h"

namespace moewe::cli {
namespace {

using Json = nlohmann::ordered_json;
using formats::Checkpoint;
using formats::CheckpointKind;
using formats::CmfFile;
using formats::SmoeVault;
using formats::TensorView;

struct Flags {
  std::string path;
  std::string scout;
  bool header = false;
  bool tensors = false;
};

// A shard whose siblings are missing is looked at alone.
std::unique_ptr<Checkpoint> Open(const std::string& path, const std::string& scout) {
  try {
    return formats::OpenCheckpoint(path, scout);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound || !IsRegularFile(path)) throw;
    if (formats::smoe::LooksLikeVault(MappedFile::Open(path)->bytes())) throw;
    return CmfFile::OpenAlone(path);
  }
}

const CmfFile* AsCmf(const Checkpoint& checkpoint) {
  return checkpoint.kind() == CheckpointKind::kCmf ? static_cast<const CmfFile*>(&checkpoint)
                                                   : nullptr;
}

const SmoeVault* AsVault(const Checkpoint& checkpoint) {
  return checkpoint.kind() == CheckpointKind::kSmoe ? static_cast<const SmoeVault*>(&checkpoint)
                                                    : nullptr;
}

// Where the tensors of each file begin: offsets in listings count from there.
std::vector<uint64_t> DataOffsets(const Checkpoint& checkpoint) {
  std::vector<uint64_t> offsets(checkpoint.files().size(), UINT64_MAX);
  for (const TensorView& tensor : checkpoint.tensors()) {
    offsets[tensor.file_index] = std::min(offsets[tensor.file_index], tensor.file_offset);
  }
  if (const CmfFile* cmf = AsCmf(checkpoint)) {
    for (size_t i = 0; i < offsets.size(); ++i) offsets[i] = cmf->contents(i).envelope.data.offset;
  }
  return offsets;
}

Json TensorList(const Checkpoint& checkpoint) {
  const std::vector<uint64_t> data = DataOffsets(checkpoint);
  Json list = Json::array();
  for (const TensorView& tensor : checkpoint.tensors()) {
    list.push_back({{"name", tensor.name},
                    {"dtype", DTypeName(tensor.dtype)},
                    {"shape", tensor.shape},
                    {"offset", nullptr},
                    {"file_offset", nullptr},
                    {"nbytes", tensor.bytes.size()},
                    {"hash", HashToHex(tensor.hash)},
                    {"file", tensor.file_index}});
    if (tensor.file_offset == formats::kNotInFile) continue;
    list.back()["offset"] = tensor.file_offset - data[tensor.file_index];
    list.back()["file_offset"] = tensor.file_offset;
  }
  for (const formats::OpaqueTensor& tensor : checkpoint.opaque_tensors()) {
    list.push_back({{"name", tensor.name},
                    {"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"nbytes", tensor.nbytes}});
  }
  return list;
}

struct DTypeTotal {
  uint64_t count = 0;
  uint64_t values = 0;
  uint64_t bytes = 0;
};

std::map<std::string, DTypeTotal> Totals(const Checkpoint& checkpoint) {
  std::map<std::string, DTypeTotal> totals;
  for (const TensorView& tensor : checkpoint.tensors()) {
    DTypeTotal& total = totals[std::string(DTypeName(tensor.dtype))];
    const quant::MatrixShape shape = tensor.matrix();
    total.count += 1;
    total.values += shape.rows * shape.cols;
    total.bytes += tensor.bytes.size();
  }
  for (const formats::OpaqueTensor& tensor : checkpoint.opaque_tensors()) {
    DTypeTotal& total = totals[tensor.dtype];
    total.count += 1;
    total.bytes += tensor.nbytes;
  }
  return totals;
}

std::string Size(uint64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  if (bytes < 10'000'000'000) return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
  return fmt::format("{:.1f} GB", static_cast<double>(bytes) / 1e9);
}

// How the experts lie in a vault, and whether a key says that the Scout is this vault's.
Json VaultLayout(const SmoeVault& vault) {
  namespace smoe = formats::smoe;
  uint64_t groups = 0;
  uint64_t bytes = 0;
  uint64_t padded = 0;
  for (const smoe::Expert& expert : vault.tables().experts) {
    for (const smoe::TensorDescriptor& tensor : expert.tensors) {
      groups += smoe::NumGroups(uint64_t{tensor.rows} * tensor.cols);
    }
    bytes += expert.entry.raw_size;
    padded += expert.entry.padded_size;
  }
  const Json& config = vault.config();
  // One that does not fit is an error already.
  const bool keyed = config.contains("scout") && config.at("scout").contains(smoe::kKeyName);
  return {{"groups", groups},
          {"expert_bytes", bytes},
          {"page_bytes", smoe::kPage},
          {"pages", padded / smoe::kPage},
          {"padding_bytes", padded - bytes},
          {"key", keyed ? "fits" : "none"}};
}

void PrintVault(const SmoeVault& vault) {
  const formats::smoe::Header& header = vault.tables().header;
  const Json layout = VaultLayout(vault);
  fmt::print("vault: version {} · {} experts in {} layers · {} bits, {} groups of {}\n",
             header.version, header.total_experts, header.num_moe_layers, header.bits,
             layout["groups"].get<uint64_t>(), header.group_size);
  fmt::print("  {} pages of 16 KiB · {} of experts, {} of padding\n",
             layout["pages"].get<uint64_t>(), Size(layout["expert_bytes"].get<uint64_t>()),
             Size(layout["padding_bytes"].get<uint64_t>()));
  fmt::print("Scout: {} · {}\n", vault.files()[1],
             layout["key"] == "fits" ? "its key fits the vault"
                                     : "no key: its shapes fit, whose it is can't be told");
  for (const std::string& warning : vault.Warnings()) fmt::print("warning: {}\n", Shown(warning));
}

Json SparseIndexList(const CmfFile& cmf) {
  Json list = Json::array();
  for (const formats::cmf::SparseEntry& entry : cmf.contents().sparse_index) {
    list.push_back({{"task_id", entry.task_id},
                    {"layer_idx", entry.layer},
                    {"active_ffn_groups", entry.ffn_groups},
                    {"active_heads", entry.heads}});
  }
  return list;
}

Json EnvelopeObject(const formats::cmf::Envelope& envelope, uint64_t file_length) {
  Json json = Json::object();
  const auto add = [&json](const char* name, const formats::cmf::Section& section) {
    json[name + std::string("_off")] = section.offset;
    json[name + std::string("_len")] = section.length;
  };
  add("header", envelope.header);
  add("dir", envelope.directory);
  add("data", envelope.data);
  add("masks", envelope.masks);
  add("vocab", envelope.tokenizer);
  add("index", envelope.index);
  json["header_hash"] = HashToHex(envelope.header_hash);
  json["dir_hash"] = HashToHex(envelope.directory_hash);
  json["file_len"] = file_length;
  return json;
}

Json FeatureNames(uint32_t features) {
  Json names = Json::array();
  for (uint32_t bit = 0; bit < 32; ++bit) {
    if ((features >> bit & 1) != 0) names.push_back(formats::cmf::FeatureName(bit));
  }
  return names;
}

// Skills without their routing matrices.
Json SkillList(const Json& header) {
  Json list = Json::array();
  if (!header.contains("skills") || !header.at("skills").is_array()) return list;
  for (Json skill : header.at("skills")) {
    if (skill.contains("selection") && skill["selection"].is_object()) {
      skill["selection"].erase("mean");
      skill["selection"].erase("basis");
    }
    list.push_back(std::move(skill));
  }
  return list;
}

Json Describe(const Checkpoint& checkpoint) {
  const CmfFile* cmf = AsCmf(checkpoint);
  const Json& config = checkpoint.config();
  Json info = Json::object();
  const SmoeVault* vault = AsVault(checkpoint);
  info["kind"] = cmf != nullptr     ? "cmf"
                 : vault != nullptr ? "smoe"
                 : config.is_null() ? "safetensors"
                                    : "huggingface";
  info["files"] = checkpoint.files();
  uint64_t file_bytes = 0;
  for (const std::string& file : checkpoint.files()) file_bytes += FileSize(file);
  info["file_bytes"] = file_bytes;
  if (cmf != nullptr) {
    info["arch"] = config.at("arch");
  } else if (vault != nullptr) {
    info["arch"] = model::ToCmfArch(model::ReadConfig(checkpoint));
    info["vault"] = config;
    info["vault"]["layout"] = VaultLayout(*vault);
    info["warnings"] = vault->Warnings();
  } else if (!config.is_null()) {
    info["arch"] = config;
  }
  uint64_t count = 0;
  uint64_t bytes = 0;
  Json dtypes = Json::object();
  for (const auto& [name, total] : Totals(checkpoint)) {
    dtypes[name] = {{"tensors", total.count}, {"values", total.values}, {"bytes", total.bytes}};
    count += total.count;
    bytes += total.bytes;
  }
  info["tensor_count"] = count;
  info["tensor_bytes"] = bytes;
  info["dtypes"] = std::move(dtypes);
  info["tokenizer_bytes"] = checkpoint.tokenizer_json().size();
  info["chat"] = checkpoint.chat_bundle();
  if (cmf == nullptr) return info;
  const formats::CmfContents& contents = cmf->contents();
  info["quant_type"] = config.at("quant_type");
  info["required_features"] = contents.envelope.required_features;
  info["features"] = FeatureNames(contents.envelope.required_features);
  info["flags"] = contents.envelope.flags;
  info["envelope"] = EnvelopeObject(contents.envelope, cmf->file_bytes().size());
  info["default_task"] = contents.masks.default_task;
  info["masks"] = MaskList(*cmf, MaskRowsAs::kCounts);
  info["sparse_index"] = SparseIndexList(*cmf);
  info["skills"] = SkillList(config);
  info["standalone_skill"] = contents.header.standalone_skill;
  info["shard"] = config.contains("shard") ? config.at("shard") : Json();
  info["provenance"] = config.contains("provenance") ? config.at("provenance") : Json();
  return info;
}

void PrintTensors(const Checkpoint& checkpoint) {
  for (const TensorView& tensor : checkpoint.tensors()) {
    fmt::print("{:<9} {:<20} {:>12} {:>14}  {}  {}\n", DTypeName(tensor.dtype),
               fmt::format("[{}]", fmt::join(tensor.shape, ", ")), tensor.bytes.size(),
               tensor.file_offset == formats::kNotInFile ? "-" : std::to_string(tensor.file_offset),
               HashToHex(tensor.hash), Shown(tensor.name));
  }
  for (const formats::OpaqueTensor& tensor : checkpoint.opaque_tensors()) {
    fmt::print("{:<9} {:<20} {:>12} {:>14}  {:<16}  {}\n", tensor.dtype,
               fmt::format("[{}]", fmt::join(tensor.shape, ", ")), tensor.nbytes, "-", "-",
               Shown(tensor.name));
  }
}

// Numbers and words of the architecture, not its lists.
void PrintArch(const Json& arch) {
  std::string line;
  for (const auto& [key, value] : arch.items()) {
    if (value.is_null() || value.is_structured()) continue;
    const std::string item = Shown(
        fmt::format("{} {}", key, value.is_string() ? value.get<std::string>() : value.dump()));
    if (line.size() + item.size() > 90) {
      fmt::print("  {}\n", line);
      line.clear();
    }
    line += (line.empty() ? "" : " · ") + item;
  }
  if (!line.empty()) fmt::print("  {}\n", line);
  if (arch.contains("moe") && arch.at("moe").is_object())
    fmt::print("  moe {}\n", Shown(arch.at("moe").dump()));
}

// "3", "2 to 5": what is left in each layer.
std::string Range(const Json& counts) {
  uint64_t least = UINT64_MAX;
  uint64_t most = 0;
  for (const Json& count : counts) {
    if (!count.is_number_unsigned()) continue;
    least = std::min(least, count.get<uint64_t>());
    most = std::max(most, count.get<uint64_t>());
  }
  return least >= most ? fmt::format("{}", most) : fmt::format("{} to {}", least, most);
}

// What a cut left out, as its provenance tells.
void PrintCuts(const Json& provenance) {
  constexpr struct {
    const char* block;
    const char* what;
    const char* before;
  } kCuts[] = {{"defrag", "neurons", "pre_intermediate"},
               {"moe_defrag", "experts", "num_experts_pre"}};
  if (!provenance.is_object()) return;
  for (const auto& cut : kCuts) {
    const auto block = provenance.find(cut.block);
    if (block == provenance.end() || !block->is_object() || !block->contains("kept_per_layer") ||
        !block->contains(cut.before)) {
      continue;
    }
    const Json& kept = block->at("kept_per_layer");
    if (!kept.is_array() || kept.empty()) continue;
    fmt::print("cut: {} of {} {} left in {}\n", Range(kept), Shown(block->at(cut.before).dump()),
               cut.what, kept.size() == 1 ? "1 layer" : fmt::format("{} layers", kept.size()));
  }
}

void PrintSummary(const Checkpoint& checkpoint) {
  const Json info = Describe(checkpoint);
  fmt::print("{} · {} · {} file(s)\n", info["kind"].get<std::string>(),
             Size(info["file_bytes"].get<uint64_t>()), checkpoint.files().size());
  if (info.contains("arch")) PrintArch(info["arch"]);
  fmt::print("tensors: {} · {}\n", info["tensor_count"].get<uint64_t>(),
             Size(info["tensor_bytes"].get<uint64_t>()));
  for (const auto& [name, total] : Totals(checkpoint)) {
    fmt::print("  {:<9} {:>6} tensors  {:>14} values  {:>10}\n", name, total.count, total.values,
               Size(total.bytes));
  }
  fmt::print("tokenizer: {}\n", checkpoint.tokenizer_json().empty()
                                    ? "none"
                                    : Size(checkpoint.tokenizer_json().size()));
  const Json& chat = checkpoint.chat_bundle();
  const bool has_template = chat.is_object() && chat.contains("chat_template");
  fmt::print("chat template: {}", has_template ? "yes" : "none");
  if (chat.is_object() && chat.contains("eos_token_ids")) {
    fmt::print(" · stops at {}", Shown(chat.at("eos_token_ids").dump()));
  }
  fmt::print("\n");
  if (const SmoeVault* vault = AsVault(checkpoint)) PrintVault(*vault);
  if (!info.contains("features")) return;
  fmt::print("features: {}\n", info["features"].dump());
  PrintCuts(info["provenance"]);
  const CmfFile* cmf = AsCmf(checkpoint);
  for (const formats::cmf::TaskMask& mask : cmf->contents().masks.masks) {
    fmt::print("mask {}\n", MaskLine(*cmf, mask));
  }
  if (const size_t entries = cmf->contents().sparse_index.size(); entries != 0) {
    fmt::print("sparse index: {} entries\n", entries);
  }
  for (const Json& skill : info["skills"]) {
    fmt::print("skill {}{}\n", Shown(skill["id"].get<std::string>()),
               info["standalone_skill"] == true ? " (standalone: needs its base)" : "");
  }
  if (info["shard"].is_object()) {
    fmt::print("shard {} of {}\n", info["shard"]["no"].dump(), info["shard"]["count"].dump());
  }
}

int Run(const Flags& flags, const Globals& globals) {
  const std::unique_ptr<Checkpoint> checkpoint = Open(flags.path, flags.scout);
  if (globals.json) {
    Json info = Describe(*checkpoint);
    if (flags.header) info["header"] = checkpoint->config();
    if (flags.tensors) info["tensors"] = TensorList(*checkpoint);
    PrintJson(info);
    return 0;
  }
  if (flags.header) {
    fmt::print("{}\n", checkpoint->config().dump(2, ' ', false, Json::error_handler_t::replace));
  }
  if (flags.tensors) PrintTensors(*checkpoint);
  if (!flags.header && !flags.tensors) PrintSummary(*checkpoint);
  return 0;
}

}  // namespace

Action AddInfo(CLI::App& verb, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  verb.add_option("FILE", flags->path,
                  "a .cmf, a .smoe, a safetensors file or a Hugging Face folder")
      ->required();
  verb.add_option("--scout", flags->scout, kScoutHelp);
  verb.add_flag("--header", flags->header, "the header JSON (config.json of a folder)");
  verb.add_flag("--tensors", flags->tensors, "the directory of tensors");
  return [flags, &globals] { return Run(*flags, globals); };
}

}  // namespace moewe::cli
