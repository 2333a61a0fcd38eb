// A Hugging Face folder as a checkpoint: config.json, one or more safetensors files, tokenizer,
// chat files.
#ifndef MOEWE_FORMATS_SAFETENSORS_HF_FOLDER_H_
#define MOEWE_FORMATS_SAFETENSORS_HF_FOLDER_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "formats/checkpoint.h"
#include "formats/tensor_index.h"
#include "platform/mapped_file.h"

namespace moewe::formats {

// Weights are model.safetensors, else the shards of model.safetensors.index.json, else all
// *.safetensors of the folder. Files may be symbolic links, as in Hugging Face's cache. Tensors
// come in file order, within a file in data order.
class HfFolder : public Checkpoint {
 public:
  // Throws Error{kNotFound} for a missing config.json, weights or shard, Error{kMissingTensor} if a
  // shard lacks a tensor that the index puts there, Error{kParse, kBounds} for faults of a file.
  static std::unique_ptr<HfFolder> Open(const std::string& folder);

  // One safetensors file alone: tensors only.
  static std::unique_ptr<HfFolder> OpenFile(const std::string& path);

  CheckpointKind kind() const override { return CheckpointKind::kHuggingFace; }
  const std::vector<std::string>& files() const override { return paths_; }
  const std::vector<TensorView>& tensors() const override { return index_.views(); }
  const TensorView* Find(std::string_view name) const override { return index_.Find(name); }
  const std::vector<OpaqueTensor>& opaque_tensors() const override { return opaque_; }
  const Json& config() const override { return config_; }
  Bytes tokenizer_json() const override { return tokenizer_ ? tokenizer_->bytes() : Bytes(); }
  const Json& chat_bundle() const override { return chat_bundle_; }
  void CheckReadable() const override;

  // __metadata__ of all files.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  // tensor name -> file name, from the index; empty if there is none.
  using WeightMap = std::map<std::string, std::string>;

  static WeightMap ReadWeightMap(const std::string& path);
  static std::vector<std::string> FindWeightFiles(const std::string& folder, WeightMap* weight_map);
  void AddFile(const std::string& path, const WeightMap& weight_map);
  void CheckWeightMap(const WeightMap& weight_map, const std::string& folder) const;

  std::vector<std::string> paths_;
  std::vector<std::unique_ptr<MappedFile>> weights_;
  std::unique_ptr<MappedFile> tokenizer_;
  TensorIndex index_;
  std::vector<OpaqueTensor> opaque_;
  std::map<std::string, std::string> metadata_;
  Json config_;
  Json chat_bundle_;
};

}  // namespace moewe::formats

#endif  // MOEWE_FORMATS_SAFETENSORS_HF_FOLDER_H_
