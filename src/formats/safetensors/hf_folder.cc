#include "formats/safetensors/hf_folder.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "formats/safetensors/chat_bundle.h"
#include "formats/safetensors/safetensors.h"
#include "platform/file_io.h"
#include "platform/paths.h"

namespace moewe::formats {
namespace {

namespace fs = std::filesystem;

constexpr char kIndexName[] = "model.safetensors.index.json";
constexpr uint64_t kIndexLimit = uint64_t{256} << 20;

}  // namespace

std::unique_ptr<HfFolder> HfFolder::Open(const std::string& folder) {
  auto result = std::make_unique<HfFolder>();
  const std::string config_path = (fs::path(folder) / "config.json").string();
  if (!PathExists(config_path)) {
    throw Error(ErrorCode::kNotFound, "the folder has no config.json", {folder, ""});
  }
  result->config_ = ReadFolderJson(folder, "config.json");
  if (!result->config_.is_object()) {
    throw Error(ErrorCode::kParse, "is no JSON object", {config_path, ""});
  }
  WeightMap weight_map;
  for (const std::string& path : FindWeightFiles(folder, &weight_map)) {
    result->AddFile(path, weight_map);
  }
  result->CheckWeightMap(weight_map, folder);
  const fs::path tokenizer = fs::path(folder) / "tokenizer.json";
  if (PathExists(tokenizer.string())) result->tokenizer_ = MappedFile::Open(tokenizer.string());
  result->chat_bundle_ = BuildChatBundle(folder, result->config_, result->tokenizer_json());
  return result;
}

std::unique_ptr<HfFolder> HfFolder::OpenFile(const std::string& path) {
  auto result = std::make_unique<HfFolder>();
  result->AddFile(path, {});
  return result;
}

HfFolder::WeightMap HfFolder::ReadWeightMap(const std::string& path) {
  const Json json = ParseJson(ReadWholeFile(path, kIndexLimit), path, "");
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (map == json.end() || !map->is_object()) {
    throw Error(ErrorCode::kParse, "has no weight_map object", {path, "weight_map"});
  }
  WeightMap weight_map;
  for (const auto& [name, file] : map->items()) {
    // A plain name: an index must not reach out of its folder.
    if (!file.is_string() ||
        fs::path(file.get<std::string>()).filename() != file.get<std::string>() || file == "" ||
        file == "." || file == "..") {
      throw Error(ErrorCode::kParse, "is no file name", {path, "weight_map[\"" + name + "\"]"});
    }
    weight_map.emplace(name, file.get<std::string>());
  }
  return weight_map;
}

std::vector<std::string> HfFolder::FindWeightFiles(const std::string& folder,
                                                   WeightMap* weight_map) {
  const fs::path single = fs::path(folder) / "model.safetensors";
  if (PathExists(single.string())) return {single.string()};
  const fs::path index = fs::path(folder) / kIndexName;
  std::set<std::string> names;
  if (PathExists(index.string())) {
    *weight_map = ReadWeightMap(index.string());
    for (const auto& [tensor, file] : *weight_map) names.insert(file);
  } else {
    std::error_code problem;
    fs::directory_iterator entry(folder, problem);
    for (; !problem && entry != fs::directory_iterator(); entry.increment(problem)) {
      if (entry->path().extension() == ".safetensors") {
        names.insert(entry->path().filename().string());
      }
    }
    if (problem) {
      throw Error(ErrorCode::kIo, "cannot list: " + problem.message(), {folder, ""});
    }
  }
  if (names.empty()) {
    throw Error(ErrorCode::kNotFound, "the folder has no safetensors file", {folder, ""});
  }
  std::vector<std::string> paths;
  for (const std::string& name : names) {
    paths.push_back((fs::path(folder) / name).string());
    if (!PathExists(paths.back())) {
      throw Error(ErrorCode::kNotFound, "a shard that the index names is not there",
                  {paths.back(), ""});
    }
  }
  return paths;
}

void HfFolder::AddFile(const std::string& path, const WeightMap& weight_map) {
  std::unique_ptr<MappedFile> file = MappedFile::Open(path);
  SafetensorsHeader header = ParseSafetensors(file->bytes(), path);
  file->Check();
  const auto file_index = static_cast<uint32_t>(weights_.size());
  const std::string file_name = fs::path(path).filename().string();
  index_.Reserve(index_.views().size() + header.entries.size());
  for (SafetensorsEntry& entry : header.entries) {
    // A copy that the index does not point to is not the tensor.
    const auto mapped = weight_map.find(entry.name);
    if (mapped != weight_map.end() && mapped->second != file_name) continue;
    if (!entry.dtype) {
      opaque_.push_back(OpaqueOf(std::move(entry), file->bytes(), file_index));
      continue;
    }
    TensorView view = ViewOf(std::move(entry), file->bytes(), file_index);
    const std::string name = view.name;
    if (!index_.Add(std::move(view))) {
      throw Error(ErrorCode::kParse, "tensor '" + name + "' is in two files",
                  {path, "header[\"" + name + "\"]"});
    }
  }
  metadata_.merge(header.metadata);
  paths_.push_back(path);
  weights_.push_back(std::move(file));
}

void HfFolder::CheckWeightMap(const WeightMap& weight_map, const std::string& folder) const {
  std::set<std::string_view> opaque;
  for (const OpaqueTensor& tensor : opaque_) opaque.insert(tensor.name);
  for (const auto& [name, file] : weight_map) {
    if (index_.Find(name) != nullptr || opaque.contains(name)) continue;
    throw Error(ErrorCode::kMissingTensor,
                "tensor '" + name + "' is not in the shard that the index names",
                {(fs::path(folder) / file).string(), "header[\"" + name + "\"]"});
  }
}

void HfFolder::CheckReadable() const {
  for (const auto& file : weights_) file->Check();
  if (tokenizer_) tokenizer_->Check();
}

}  // namespace moewe::formats
