#include "formats/smoe/smoe_vault.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "base/hash64.h"
#include "platform/file_io.h"

namespace moewe::formats {
namespace {

constexpr uint64_t kChatLimit = uint64_t{256} << 20;

template <typename Record>
void AddFields(const Record& record, Json* json) {
  VisitFields(record, [&](const char* name, auto value) { (*json)[name] = value; });
}

Json HeaderJson(const smoe::Header& header) {
  Json json;
  AddFields(header, &json);
  return json;
}

Json ArchJson(const smoe::ArchBlock& arch) {
  Json json = {{"model_type", arch.model_type},
               {"norm_topk_prob", arch.Has(smoe::kNormTopk)},
               {"has_qk_norm", arch.Has(smoe::kHasQkNorm)},
               {"has_dense_layer_0", arch.Has(smoe::kHasDenseLayer0)}};
  AddFields(arch, &json);
  return json;
}

}  // namespace

SmoeCompanions CompanionsOf(const std::string& vault) {
  std::string stem = vault;
  if (stem.ends_with(".smoe")) stem.resize(stem.size() - 5);
  return {stem + ".scout.safetensors", stem + ".tokenizer.json", stem + ".chat.json"};
}

std::unique_ptr<SmoeVault> SmoeVault::Open(const std::string& path, const std::string& scout) {
  auto result = std::make_unique<SmoeVault>();
  result->vault_ = MappedFile::Open(path);
  result->paths_.push_back(path);
  result->tables_ = smoe::ParseVaultTables(result->vault_->bytes(), path);
  const SmoeCompanions companions = CompanionsOf(path);
  result->OpenScout(scout.empty() ? companions.scout : scout);
  result->geometry_ =
      smoe::CheckPair(result->tables_, path, result->vault_->bytes(), result->scout_);
  result->AddExperts();
  result->OpenCompanions(companions);
  result->Describe();
  result->CheckReadable();
  return result;
}

void SmoeVault::OpenScout(const std::string& path) {
  if (!std::filesystem::exists(path)) {
    throw Error(ErrorCode::kNotFound,
                "the vault's Scout (its trunk, a safetensors file) is not there; --scout names "
                "another place",
                {path, ""});
  }
  scout_ = smoe::ScoutFile::Open(path, 3 * tables_.experts.size());
  paths_.push_back(path);
}

void SmoeVault::AddExperts() {
  const Bytes file = vault_->bytes();
  for (const smoe::Expert& expert : tables_.experts) {
    for (size_t t = 0; t < 3; ++t) {
      const smoe::TensorDescriptor& tensor = expert.tensors[t];
      TensorView view;
      view.name = fmt::format("model.layers.{}.mlp.experts.{}.{}.weight", expert.entry.layer_id,
                              expert.entry.expert_id, smoe::kProjections[t]);
      view.dtype = smoe::ExpertDType(tables_.header.bits);
      view.shape = {tensor.rows, tensor.cols};
      const uint64_t at = expert.entry.byte_offset + tensor.packed_offset;
      const Bytes packed = file.subspan(at, tensor.packed_size);
      const Bytes scales =
          file.subspan(expert.entry.byte_offset + tensor.scales_offset, tensor.scales_size);
      if (smoe::IsContiguous(tensor)) {
        view.file_offset = at;
        view.bytes = file.subspan(at, packed.size() + scales.size());
      } else {
        view.file_offset = kNotInFile;
        std::vector<uint8_t>& copy = copies_.emplace_back(packed.begin(), packed.end());
        copy.insert(copy.end(), scales.begin(), scales.end());
        view.bytes = copy;
      }
      const std::string name = view.name;
      if (!scout_.tensors.Add(std::move(view))) {
        throw Error(ErrorCode::kParse, "is an expert's, which the vault has already",
                    {paths_[1], name});
      }
    }
  }
}

void SmoeVault::OpenCompanions(const SmoeCompanions& companions) {
  if (std::filesystem::exists(companions.tokenizer)) {
    tokenizer_ = MappedFile::Open(companions.tokenizer);
  }
  if (!std::filesystem::exists(companions.chat)) return;
  chat_bundle_ = ParseJson(ReadWholeFile(companions.chat, kChatLimit), companions.chat, "");
  if (!chat_bundle_.is_object()) {
    throw Error(ErrorCode::kParse, "is no JSON object", {companions.chat, ""});
  }
}

void SmoeVault::Describe() {
  config_["header"] = HeaderJson(tables_.header);
  if (tables_.arch) config_["arch"] = ArchJson(*tables_.arch);
  if (!scout_.metadata.empty()) config_["scout"] = scout_.metadata;
}

void SmoeVault::CheckReadable() const {
  vault_->Check();
  scout_.file->Check();
  if (tokenizer_) tokenizer_->Check();
}

std::vector<std::string> SmoeVault::Warnings() const {
  std::vector<std::string> warnings = tables_.warnings;
  warnings.insert(warnings.end(), geometry_.warnings.begin(), geometry_.warnings.end());
  return warnings;
}

}  // namespace moewe::formats
