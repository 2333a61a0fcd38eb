#include "convert/cut_masks.h"

#include <algorithm>
#include <map>
#include <optional>

#include "convert/expert_counts.h"
#include "formats/cmf/expert_numbering.h"

namespace moewe::convert {
namespace {

using formats::cmf::MaskBit;
using formats::cmf::TaskMask;
using Rows = std::vector<uint8_t>;

void SetBit(uint8_t* row, uint64_t i) {
  row[i / 8] = static_cast<uint8_t>(row[i / 8] | (1u << (i % 8)));
}

class Renumberer {
 public:
  Renumberer(const formats::CmfFile& source, const Cut& cut)
      : cut_(cut),
        experts_(ExpertsByLayer(source)),
        num_experts_(source.contents().header.num_experts) {}

  // The blob of a mask with expert fields, or nothing if it has no meaning any more.
  std::optional<Rows> Blob(const TaskMask& mask) const {
    const uint64_t row_bytes = formats::cmf::MaskBytes(num_experts_);
    const uint64_t before = mask.blob.size() - mask.expert_rows.size() * row_bytes;
    Rows blob(mask.blob.begin(), mask.blob.begin() + static_cast<ptrdiff_t>(before));
    blob.resize(mask.blob.size(), 0);
    for (uint32_t layer = 0; layer < mask.expert_rows.size(); ++layer) {
      if (!Row(mask, layer, blob.data() + before + layer * row_bytes)) return std::nullopt;
    }
    return blob;
  }

 private:
  // Writes a layer's row; false if there is none. A row that restricts nothing is all ones.
  bool Row(const TaskMask& mask, uint32_t layer, uint8_t* out) const {
    const auto found = experts_.find(layer);
    const uint64_t present = found == experts_.end() ? num_experts_ : found->second;
    const bool by_presence = formats::cmf::NumbersPresentExperts(mask.meta);
    const uint64_t width = by_presence ? std::min(present, num_experts_) : num_experts_;
    const Bytes row = mask.expert_rows[layer];
    uint64_t old_live = 0;
    for (uint64_t e = 0; e < width; ++e) old_live += MaskBit(row, e) ? 1 : 0;
    std::vector<uint64_t> live;
    uint64_t total = width;
    if (old_live < width) {
      if (width != present) return false;
      if (const auto kept = cut_.experts.find(layer); kept != cut_.experts.end()) {
        total = kept->second->size();
        for (uint64_t i = 0; i < total; ++i) {
          if (MaskBit(row, (*kept->second)[i])) live.push_back(i);
        }
      } else {
        for (uint64_t e = 0; e < width; ++e) {
          if (MaskBit(row, e)) live.push_back(e);
        }
      }
      if (live.empty()) return found == experts_.end();  // nobody asks a layer without experts
    }
    if (live.empty() || live.size() == total) {
      for (uint64_t e = 0; e < num_experts_; ++e) SetBit(out, e);
    } else {
      for (const uint64_t e : live) SetBit(out, e);
    }
    return true;
  }

  const Cut& cut_;
  const std::map<uint32_t, uint32_t> experts_;
  const uint64_t num_experts_;
};

bool Contains(const std::vector<std::string>& names, const Json& name) {
  return name.is_string() &&
         std::find(names.begin(), names.end(), name.get<std::string>()) != names.end();
}

}  // namespace

CutMasks RenumberExperts(const formats::CmfFile& source, const Cut& cut) {
  CutMasks result;
  const formats::cmf::MaskCatalog& catalog = source.contents().masks;
  if (catalog.masks.empty()) return result;
  const Renumberer renumberer(source, cut);
  Json meta = catalog.meta;
  Json& list = meta["masks"] = Json::array();
  std::vector<Rows> blobs;
  for (const TaskMask& mask : catalog.masks) {
    if (mask.expert_rows.empty()) {
      list.push_back(mask.meta);
      blobs.emplace_back(mask.blob.begin(), mask.blob.end());
      continue;
    }
    std::optional<Rows> blob = renumberer.Blob(mask);
    if (!blob) {
      result.dropped.push_back(mask.name);
      for (const auto& entry : source.contents().sparse_index) {
        if (entry.task_id == mask.task_id) result.index_stays = false;
      }
      continue;
    }
    result.renumbered.push_back(mask.name);
    list.push_back(mask.meta);
    list.back()[formats::cmf::kExpertNumbering] = formats::cmf::kNumbersPresent;
    blobs.push_back(std::move(*blob));
  }
  if (blobs.empty()) return result;
  if (meta.contains("default_task") && Contains(result.dropped, meta["default_task"])) {
    meta["default_task"] = "none";
  }
  for (Json& mask : list) {
    if (mask.contains("parent") && Contains(result.dropped, mask["parent"])) {
      mask["parent"] = nullptr;
    }
  }
  result.section = formats::cmf::SerializeMasks(std::move(meta), blobs);
  return result;
}

}  // namespace moewe::convert
