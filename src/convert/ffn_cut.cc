#include "convert/ffn_cut.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <string_view>
#include <system_error>

#include "convert/block_decoder.h"
#include "convert/expert_counts.h"
#include "formats/cmf/expert_numbering.h"
#include "formats/tensor_values.h"
#include "model/name_parts.h"
#include "moewe/error.h"

namespace moewe::convert {
namespace {

namespace fs = std::filesystem;
using formats::TensorView;
using formats::cmf::MaskBit;

// The layer of a dense FFN's down_proj of the backbone; its columns are the neurons.
std::optional<uint32_t> DownProjLayer(const TensorView& tensor) {
  std::string_view name = tensor.name;
  const auto layer = model::EatNumbered(&name, "model.layers.");
  if (!layer || name != ".mlp.down_proj.weight" || tensor.shape.size() != 2) return std::nullopt;
  return layer;
}

std::vector<std::string> NpyFiles(const fs::path& folder) {
  std::vector<std::string> files;
  std::error_code problem;
  for (const auto& entry : fs::directory_iterator(folder, problem)) {
    if (entry.path().extension() == ".npy") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// The columns that are not all zeros.
std::vector<uint32_t> LiveColumns(const TensorView& tensor, ThreadPool& pool, const Where& where) {
  formats::TensorValues(tensor).Validate(where);
  const auto cols = static_cast<size_t>(tensor.matrix().cols);
  constexpr uint64_t kRows = 64;
  std::vector<std::vector<uint8_t>> live(static_cast<size_t>(pool.num_threads()),
                                         std::vector<uint8_t>(cols, 0));
  const Selection all;
  BlockDecoder(tensor, all, kRows, pool)
      .ForBlocks([&](const float* values, uint64_t begin, uint64_t end, int worker) {
        uint8_t* of_worker = live[static_cast<size_t>(worker)].data();
        for (uint64_t row = begin; row < end; ++row, values += cols) {
          for (size_t c = 0; c < cols; ++c) of_worker[c] |= values[c] != 0.0f ? 1 : 0;
        }
      });
  std::vector<uint32_t> columns;
  for (uint32_t c = 0; c < cols; ++c) {
    const bool is_live = std::any_of(live.begin(), live.end(),
                                     [c](const std::vector<uint8_t>& of) { return of[c] != 0; });
    if (is_live) columns.push_back(c);
  }
  return columns;
}

// What a task mask leaves of a file.
class TaskCutter {
 public:
  TaskCutter(const formats::CmfFile& source, const formats::cmf::TaskMask& mask)
      : mask_(mask),
        header_(source.contents().header),
        where_{source.files().front(), fmt::format("mask '{}'", mask.name)} {}

  Cut Cutting(const formats::CmfFile& source) const {
    for (uint32_t layer = 0; layer < header_.num_layers; ++layer) {
      if (!mask_.layer_gates[layer]) Refuse(fmt::format("turns off layer {}", layer));
      if (!All(mask_.head_rows[layer], header_.num_attention_heads)) {
        Refuse(fmt::format("turns off attention heads of layer {}", layer));
      }
    }
    Cut cut;
    for (const TensorView& tensor : source.tensors()) {
      if (const auto layer = DownProjLayer(tensor)) AddNeurons(*layer, tensor.shape[1], &cut);
    }
    if (!mask_.expert_rows.empty()) {
      for (const auto& [layer, experts] : ExpertsByLayer(source)) AddExperts(layer, experts, &cut);
    }
    if (cut.empty()) throw Error(ErrorCode::kUsage, "the mask turns nothing off", where_);
    return cut;
  }

 private:
  [[noreturn]] void Refuse(const std::string& what) const {
    throw Error(ErrorCode::kUnsupported,
                what + ", which a cut cannot leave out: only FFN neurons and experts", where_);
  }

  static bool All(Bytes row, uint64_t width) { return formats::cmf::LiveBits(row) == width; }

  void AddNeurons(uint32_t layer, uint64_t width, Cut* cut) const {
    if (layer >= header_.num_layers) return;
    const Bytes row = mask_.ffn_rows[layer];
    for (size_t visit = layer; visit < mask_.ffn_rows.size();
         visit += static_cast<size_t>(header_.num_layers)) {
      if (!std::equal(row.begin(), row.end(), mask_.ffn_rows[visit].begin())) {
        Refuse(fmt::format("turns off different neurons of layer {} in its passes", layer));
      }
    }
    if (All(row, header_.intermediate_size)) return;
    cut->neurons[layer] = Live(row, header_.intermediate_size, width, layer);
  }

  void AddExperts(uint32_t layer, uint64_t experts, Cut* cut) const {
    if (layer >= header_.num_layers) return;
    const Bytes row = mask_.expert_rows[layer];
    if (All(row, header_.num_experts)) return;
    const uint64_t width =
        formats::cmf::NumbersPresentExperts(mask_.meta) ? experts : header_.num_experts;
    Kept kept = Live(row, width, experts, layer);
    if (kept->empty()) {
      throw Error(ErrorCode::kParse, fmt::format("leaves layer {} no expert to route to", layer),
                  where_);
    }
    if (kept->size() < experts) cut->experts[layer] = std::move(kept);
  }

  Kept Live(Bytes row, uint64_t width, uint64_t actual, uint32_t layer) const {
    if (width != actual || width > row.size() * 8) {
      Refuse(fmt::format("has {} bits for layer {}, which has {}", width, layer, actual));
    }
    std::vector<uint32_t> live;
    for (uint32_t i = 0; i < width; ++i) {
      if (MaskBit(row, i)) live.push_back(i);
    }
    return std::make_shared<std::vector<uint32_t>>(std::move(live));
  }

  const formats::cmf::TaskMask& mask_;
  const formats::cmf::Header& header_;
  const Where where_;
};

}  // namespace

DefragFolder::DefragFolder(const formats::Checkpoint& source, const std::string& folder)
    : source_(source), files_(source.files()) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) {
    throw Error(ErrorCode::kNotFound, "there is no such folder", {folder, "--defrag"});
  }
  const fs::path keep = fs::path(folder) / "ffn_keep.npy";
  if (fs::exists(keep, ignored)) {
    keep_file_ = keep.string();
    const auto file = MappedFile::Open(keep_file_);
    keep_ = formats::ParseNpyBits(file->bytes(), keep_file_);
    files_.push_back(keep_file_);
  }
  for (const std::string& path : NpyFiles(fs::path(folder) / "tensors")) {
    Baked baked;
    baked.name = fs::path(path).stem().string();
    baked.file_index = static_cast<uint32_t>(files_.size());
    baked.file = MappedFile::Open(path);
    baked.array = formats::ParseNpyFloats(baked.file->bytes(), path);
    files_.push_back(path);
    baked_.push_back(std::move(baked));
  }
}

void DefragFolder::CheckReadable() const {
  source_.CheckReadable();
  for (const Baked& baked : baked_) baked.file->Check();
}

void DefragFolder::Overlay(std::vector<TensorView>* tensors) const {
  std::map<std::string_view, TensorView*> by_name;
  for (TensorView& tensor : *tensors) by_name.emplace(tensor.name, &tensor);
  for (const Baked& baked : baked_) {
    const std::string& path = files_[baked.file_index];
    auto found = by_name.find(baked.name);
    if (found == by_name.end()) found = by_name.find(baked.name + ".weight");
    if (found == by_name.end()) {
      throw Error(ErrorCode::kUnknownName, fmt::format("the model has no tensor {}", baked.name),
                  {path, ""});
    }
    TensorView& tensor = *found->second;
    if (tensor.shape != baked.array.shape) {
      throw Error(ErrorCode::kParse,
                  fmt::format("has the shape [{}]; {} has [{}]", fmt::join(baked.array.shape, ", "),
                              tensor.name, fmt::join(tensor.shape, ", ")),
                  {path, "shape"});
    }
    tensor.dtype = baked.array.dtype;
    tensor.bytes = baked.array.data;
    tensor.file_index = baked.file_index;
    tensor.file_offset =
        static_cast<uint64_t>(baked.array.data.data() - baked.file->bytes().data());
    tensor.hash = 0;
  }
}

std::map<uint32_t, Kept> DefragFolder::LiveNeurons(const std::vector<TensorView>& tensors,
                                                   uint64_t num_layers, ThreadPool& pool) const {
  std::map<uint32_t, Kept> live;
  for (const TensorView& tensor : tensors) {
    const auto layer = DownProjLayer(tensor);
    if (!layer) continue;
    const uint64_t width = tensor.shape[1];
    std::vector<uint32_t> neurons;
    if (!keep_) {
      const Where where{files_[tensor.file_index], tensor.name, tensor.file_offset};
      neurons = LiveColumns(tensor, pool, where);
    } else {
      const std::vector<uint64_t>& shape = keep_->shape;
      if (shape.size() != 2 || shape[0] != num_layers || *layer >= num_layers ||
          shape[1] != width) {
        throw Error(ErrorCode::kParse,
                    fmt::format("has the shape [{}]; the model has {} layers, layer {} has {} "
                                "neurons",
                                fmt::join(shape, ", "), num_layers, *layer, width),
                    {keep_file_, "shape"});
      }
      for (uint32_t i = 0; i < width; ++i) {
        if (keep_->values[static_cast<size_t>(*layer * width + i)] != 0) neurons.push_back(i);
      }
    }
    live[*layer] = std::make_shared<std::vector<uint32_t>>(std::move(neurons));
  }
  if (live.empty()) {
    throw Error(ErrorCode::kUsage, "the model has no dense FFN to cut neurons from",
                {files_.front(), "--defrag"});
  }
  return live;
}

Cut CutOfTask(const formats::CmfFile& source, const std::string& task) {
  const formats::cmf::MaskCatalog& catalog = source.contents().masks;
  const auto found = std::find_if(catalog.masks.begin(), catalog.masks.end(),
                                  [&](const auto& mask) { return mask.name == task; });
  if (found == catalog.masks.end()) {
    throw Error(ErrorCode::kUnknownName,
                fmt::format("there is no mask '{}': {}", task, formats::cmf::MaskNames(catalog)),
                {source.files().front(), "masks"});
  }
  return TaskCutter(source, *found).Cutting(source);
}

Json FfnProvenance(const std::vector<TensorView>& tensors, const Cut& cut,
                   const std::string& origin) {
  std::map<uint32_t, uint64_t> widths;
  for (const TensorView& tensor : tensors) {
    if (const auto layer = DownProjLayer(tensor)) widths[*layer] = tensor.shape[1];
  }
  uint64_t before_max = 0;
  uint64_t before = 0;
  std::vector<uint64_t> kept;
  for (const auto& [layer, width] : widths) {
    const auto live = cut.neurons.find(layer);
    // A dead FFN keeps one neuron: no tensor may be empty.
    kept.push_back(live == cut.neurons.end() ? width : std::max<uint64_t>(live->second->size(), 1));
    before_max = std::max(before_max, width);
    before += width;
  }
  const uint64_t after = std::accumulate(kept.begin(), kept.end(), uint64_t{0});
  const double pruned = static_cast<double>(before - after) / static_cast<double>(before);
  constexpr double kDigits = 1e4;
  return {{"source_skill", origin},
          {"pre_intermediate", before_max},
          {"post_intermediate_max", *std::max_element(kept.begin(), kept.end())},
          {"kept_per_layer", kept},
          {"pruned_ratio", std::round(pruned * kDigits) / kDigits}};
}

Json TaskProvenance(const formats::CmfFile& source, const Cut& cut, const std::string& task) {
  Json provenance = Json::object();
  const std::string origin = "task " + task;
  if (!cut.neurons.empty()) provenance["defrag"] = FfnProvenance(source.tensors(), cut, origin);
  if (!cut.experts.empty()) {
    std::vector<size_t> kept;
    for (const auto& [layer, experts] : cut.experts) kept.push_back(experts->size());
    provenance["moe_defrag"] = {{"tool", fmt::format("moewe convert {}", MOEWE_VERSION)},
                                {"source_skill", origin},
                                {"num_experts_pre", source.contents().header.num_experts},
                                {"kept_per_layer", kept}};
  }
  return provenance;
}

}  // namespace moewe::convert
