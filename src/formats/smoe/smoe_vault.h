// A .smoe vault with its companions as a checkpoint: experts from the vault, everything else from
// the Scout, a safetensors file.
#ifndef MOEWE_FORMATS_SMOE_SMOE_VAULT_H_
#define MOEWE_FORMATS_SMOE_SMOE_VAULT_H_

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "formats/checkpoint.h"
#include "formats/smoe/scout.h"
#include "formats/smoe/vault_tables.h"
#include "platform/mapped_file.h"

namespace moewe::formats {

// Files that lie beside a vault "<stem>.smoe".
struct SmoeCompanions {
  std::string scout;      // <stem>.scout.safetensors: required
  std::string tokenizer;  // <stem>.tokenizer.json
  std::string chat;       // <stem>.chat.json: the chat bundle of CMF section 6.1
};
SmoeCompanions CompanionsOf(const std::string& vault);

// tensors() are the Scout's in data order, under their own names, then the experts' as
// "model.layers.N.mlp.experts.E.gate_proj.weight" and so on, of dtype smoe_q4 or smoe_q2, in table
// order. A matrix whose scales do not follow its codes is copied when the vault is opened: its
// file_offset is kNotInFile, that of any other is where its bytes lie in the vault.
class SmoeVault : public Checkpoint {
 public:
  // `scout` empty: the companion. Throws what ParseVaultTables, ParseSafetensors and
  // smoe::CheckPair throw, Error{kNotFound} without a Scout, Error{kParse} for a chat bundle that
  // is no JSON object.
  static std::unique_ptr<SmoeVault> Open(const std::string& path, const std::string& scout = {});

  CheckpointKind kind() const override { return CheckpointKind::kSmoe; }
  // The vault, then the Scout.
  const std::vector<std::string>& files() const override { return paths_; }
  const std::vector<TensorView>& tensors() const override { return scout_.tensors.views(); }
  const TensorView* Find(std::string_view name) const override { return scout_.tensors.Find(name); }
  const std::vector<OpaqueTensor>& opaque_tensors() const override { return scout_.opaque; }
  const Json& config() const override { return config_; }
  Bytes tokenizer_json() const override { return tokenizer_ ? tokenizer_->bytes() : Bytes(); }
  const Json& chat_bundle() const override { return chat_bundle_; }
  void CheckReadable() const override;

  const smoe::VaultTables& tables() const { return tables_; }
  const smoe::Geometry& geometry() const { return geometry_; }
  Bytes file_bytes() const { return vault_->bytes(); }
  // Of the vault's tables and of the pair: what is odd, each beginning with the field.
  std::vector<std::string> Warnings() const;

 private:
  void OpenScout(const std::string& path);
  void OpenCompanions(const SmoeCompanions& companions);
  void AddExperts();
  void Describe();

  std::vector<std::string> paths_;
  std::unique_ptr<MappedFile> vault_;
  smoe::ScoutFile scout_;  // the experts' views are added to its tensors
  std::unique_ptr<MappedFile> tokenizer_;
  smoe::VaultTables tables_;
  smoe::Geometry geometry_;
  std::deque<std::vector<uint8_t>> copies_;  // codes and scales brought together
  Json config_;
  Json chat_bundle_;
};

}  // namespace moewe::formats

#endif  // MOEWE_FORMATS_SMOE_SMOE_VAULT_H_
