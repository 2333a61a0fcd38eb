#include "formats/smoe/smoe_vault.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "base/hash64.h"
#include "formats/safetensors/safetensors.h"
#include "platform/file_io.h"

namespace moewe::formats {
namespace {

constexpr uint64_t kChatLimit = uint64_t{256} << 20;

Json HeaderJson(const smoe::Header& header) {
  return {{"version", header.version},
          {"num_moe_layers", header.num_moe_layers},
          {"max_experts_per_layer", header.max_experts_per_layer},
          {"total_experts", header.total_experts},
          {"table_offset", header.table_offset},
          {"data_offset", header.data_offset},
          {"group_size", header.group_size},
          {"bits", header.bits},
          {"d_model", header.d_model},
          {"vocab_size", header.vocab_size},
          {"ffn_dim", header.ffn_dim},
          {"reserved_ext", header.reserved_ext}};
}

Json ArchJson(const smoe::ArchBlock& arch) {
  return {{"model_type", arch.model_type},
          {"norm_topk_prob", arch.Has(smoe::kNormTopk)},
          {"has_qk_norm", arch.Has(smoe::kHasQkNorm)},
          {"has_dense_layer_0", arch.Has(smoe::kHasDenseLayer0)},
          {"rope_theta", arch.rope_theta},
          {"num_heads", arch.num_heads},
          {"num_kv_heads", arch.num_kv_heads},
          {"head_dim", arch.head_dim},
          {"moe_top_k", arch.moe_top_k},
          {"moe_ffn_dim", arch.moe_ffn_dim},
          {"dense_ffn_dim", arch.dense_ffn_dim},
          {"shared_expert_ffn_dim", arch.shared_expert_ffn_dim},
          {"activation", 0},
          {"num_hidden_layers", arch.num_hidden_layers},
          {"rms_norm_eps", arch.rms_norm_eps}};
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
      smoe::CheckPair(result->tables_, path, result->vault_->bytes(),
                      {result->paths_.back(), result->index_, result->opaque_, result->metadata_});
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
  scout_ = MappedFile::Open(path);
  paths_.push_back(path);
  SafetensorsHeader header = ParseSafetensors(scout_->bytes(), path);
  metadata_ = std::move(header.metadata);
  index_.Reserve(header.entries.size() + 3 * tables_.experts.size());
  for (SafetensorsEntry& entry : header.entries) {
    if (entry.dtype) {
      // The parser refuses names that are there twice.
      index_.Add(ViewOf(std::move(entry), scout_->bytes(), 1));
    } else {
      opaque_.push_back(OpaqueOf(std::move(entry)));
    }
  }
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
      view.file_offset = expert.entry.byte_offset + tensor.packed_offset;
      const Bytes packed = file.subspan(view.file_offset, tensor.packed_size);
      const Bytes scales =
          file.subspan(expert.entry.byte_offset + tensor.scales_offset, tensor.scales_size);
      if (smoe::IsContiguous(tensor)) {
        view.bytes = file.subspan(view.file_offset, packed.size() + scales.size());
      } else {
        std::vector<uint8_t>& copy = copies_.emplace_back(packed.begin(), packed.end());
        copy.insert(copy.end(), scales.begin(), scales.end());
        view.bytes = copy;
      }
      const std::string name = view.name;
      if (!index_.Add(std::move(view))) {
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
  if (!metadata_.empty()) config_["scout"] = metadata_;
}

void SmoeVault::CheckReadable() const {
  vault_->Check();
  scout_->Check();
  if (tokenizer_) tokenizer_->Check();
}

std::vector<std::string> SmoeVault::Warnings() const {
  std::vector<std::string> warnings = tables_.warnings;
  warnings.insert(warnings.end(), geometry_.warnings.begin(), geometry_.warnings.end());
  return warnings;
}

}  // namespace moewe::formats
