#include "convert/mask_edit.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/utf8.h"
#include "convert/expert_cut.h"
#include "formats/cmf/expert_numbering.h"
#include "formats/cmf/rewrite.h"
#include "moewe/error.h"

namespace moewe::convert {
namespace {

using formats::CmfFile;
using formats::TensorView;
using formats::cmf::Header;
using formats::cmf::LiveBits;
using formats::cmf::MaskBit;
using formats::cmf::MaskCatalog;
using formats::cmf::MaskNames;
using formats::cmf::TaskMask;

// A default_task that names nothing: there is always one to read, also for readers that need it.
constexpr const char* kNoDefault = "none";

bool Has(const MaskCatalog& catalog, const std::string& name) {
  return std::any_of(catalog.masks.begin(), catalog.masks.end(),
                     [&](const TaskMask& mask) { return mask.name == name; });
}

class MaskAdder {
 public:
  MaskAdder(const CmfFile& source, const MaskDescription& mask)
      : source_(source),
        mask_(mask),
        header_(source.contents().header),
        catalog_(source.contents().masks) {}

  void Check() const {
    if (mask_.name.empty()) {
      throw Error(ErrorCode::kUsage, "the mask has no name (--name)", {File(), "name"});
    }
    CheckLine("name", mask_.name);
    CheckLine("description", mask_.description);
    CheckLine("parent", mask_.parent);
    if (mask_.name == "none") {
      throw Error(ErrorCode::kUsage, "'none' means running without a mask and can't name one");
    }
    if (Has(catalog_, mask_.name)) {
      throw Error(ErrorCode::kUsage, fmt::format("there is a mask '{}' already", mask_.name), At());
    }
    if (mask_.parent.is_string() && !Has(catalog_, mask_.parent)) {
      throw Error(ErrorCode::kUnknownName,
                  fmt::format("the parent '{}' is no mask: {}", mask_.parent.get<std::string>(),
                              MaskNames(catalog_)),
                  At());
    }
    for (uint64_t layer = 0; layer < header_.num_layers; ++layer) {
      if (MaskBit(mask_.rows.layers[0], layer)) CheckLayer(layer);
    }
  }

  Json Meta(uint32_t task_id) const {
    Json meta = {{"task_id", task_id},
                 {"name", mask_.name},
                 {"description", mask_.description},
                 {"sparsity", Sparsity()},
                 {"quality", mask_.quality},
                 {"parent", mask_.parent},
                 {"priority", mask_.priority},
                 {"has_hot_pack", false}};
    if (!mask_.rows.experts.empty()) {
      meta["has_expert_fields"] = true;
      if (FileIsCut()) meta[formats::cmf::kExpertNumbering] = formats::cmf::kNumbersPresent;
    }
    return meta;
  }

  uint32_t FreeTaskId() const {
    uint64_t id = 0;
    for (const TaskMask& mask : catalog_.masks) id = std::max<uint64_t>(id, mask.task_id + 1u);
    for (const auto& entry : source_.contents().sparse_index) {
      id = std::max<uint64_t>(id, uint64_t{entry.task_id} + 1);
    }
    if (id > UINT32_MAX) throw Error(ErrorCode::kUsage, "no task id is free", At());
    return static_cast<uint32_t>(id);
  }

 private:
  const std::string& File() const { return source_.files().front(); }

  // Names and the like are one line of text, in any language.
  void CheckLine(const char* field, const Json& text) const {
    constexpr size_t kLongest = 1024;
    if (!text.is_string()) return;
    const std::string& line = text.get_ref<const std::string&>();
    RequireLine(line, {File(), std::string("mask ") + field});
    if (line.size() > kLongest) {
      throw Error(
          ErrorCode::kUsage,
          fmt::format("{} bytes are more than the {} that it may have", line.size(), kLongest),
          {File(), std::string("mask ") + field});
    }
  }

  Where At() const { return {File(), fmt::format("mask '{}'", mask_.name)}; }

  // Rows of `tensor` of a layer; 0 if the layer has none.
  uint64_t Rows(uint64_t layer, const char* tensor) const {
    const TensorView* view = source_.Find(fmt::format("model.layers.{}.mlp.{}", layer, tensor));
    return view == nullptr || view->shape.empty() ? 0 : view->shape[0];
  }

  void CheckLayer(uint64_t layer) const {
    const auto at = static_cast<size_t>(layer);
    if (const uint64_t experts = Rows(layer, "gate.weight"); experts != 0) {
      if (mask_.rows.experts.empty()) return;
      if (LiveExperts(at, experts) < std::min(experts, header_.num_experts)) {
        RefuseExpertGroups(source_);
      }
      if (LiveExperts(at, experts) == 0) {
        throw Error(ErrorCode::kParse, fmt::format("leaves layer {} no expert to route to", layer),
                    At());
      }
    } else if (const uint64_t width = Rows(layer, "gate_proj.weight"); width != 0) {
      for (size_t row = at; row < mask_.rows.ffn.size();
           row += static_cast<size_t>(header_.num_layers)) {
        CheckWidth(LiveBits(mask_.rows.ffn[row]), header_.intermediate_size, width, layer,
                   "neurons");
      }
    }
  }

  // Of the `experts` that the layer has.
  uint64_t LiveExperts(size_t layer, uint64_t experts) const {
    uint64_t live = 0;
    for (uint64_t e = 0; e < std::min(experts, header_.num_experts); ++e) {
      live += MaskBit(mask_.rows.experts[layer], e) ? 1 : 0;
    }
    return live;
  }

  // Whether a layer has fewer experts than the fields have bits (section 11.1).
  bool FileIsCut() const {
    for (uint64_t layer = 0; layer < header_.num_layers; ++layer) {
      const uint64_t experts = Rows(layer, "gate.weight");
      if (experts != 0 && experts != header_.num_experts) return true;
    }
    return false;
  }

  void CheckWidth(uint64_t live, uint64_t nominal, uint64_t actual, uint64_t layer,
                  const char* what) const {
    if (live == nominal || nominal == actual) return;
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("restricts {} {} of layer {}, which has {}", nominal, what, layer, actual),
        At());
  }

  // The share of FFN neurons that the mask turns off; if there are none, of the experts.
  double Sparsity() const {
    uint64_t all = 0;
    uint64_t live = 0;
    for (size_t row = 0; row < mask_.rows.ffn.size(); ++row) {
      const size_t layer = row % static_cast<size_t>(header_.num_layers);
      all += header_.intermediate_size;
      if (MaskBit(mask_.rows.layers[0], layer)) live += LiveBits(mask_.rows.ffn[row]);
    }
    if (live == all && !mask_.rows.experts.empty()) {
      all = live = 0;
      for (size_t layer = 0; layer < mask_.rows.experts.size(); ++layer) {
        const uint64_t experts = Rows(layer, "gate.weight");
        all += experts;
        live += LiveExperts(layer, experts);
      }
    }
    return all == 0 ? 0.0 : static_cast<double>(all - live) / static_cast<double>(all);
  }

  const CmfFile& source_;
  const MaskDescription& mask_;
  const Header& header_;
  const MaskCatalog& catalog_;
};

std::vector<std::vector<uint8_t>> Blobs(const MaskCatalog& catalog) {
  std::vector<std::vector<uint8_t>> blobs;
  for (const TaskMask& mask : catalog.masks) blobs.emplace_back(mask.blob.begin(), mask.blob.end());
  return blobs;
}

// One shard alone under another name would be no model.
void CheckTarget(const CmfFile& source, const std::string& dst) {
  std::error_code ignored;
  if (source.files().size() > 1 &&
      !std::filesystem::equivalent(source.files().front(), dst, ignored)) {
    throw Error(ErrorCode::kUsage, "masks of a set of shards are changed in place",
                {source.files().front(), ""});
  }
}

}  // namespace

uint32_t AddMask(const CmfFile& source, const MaskDescription& mask, bool make_default,
                 const std::string& dst) {
  CheckTarget(source, dst);
  const MaskAdder adder(source, mask);
  adder.Check();
  const MaskCatalog& catalog = source.contents().masks;
  Json meta = catalog.meta.is_null() ? Json::object() : catalog.meta;
  if (make_default) {
    meta["default_task"] = mask.name;
  } else if (!meta.contains("default_task") || meta["default_task"] == mask.name) {
    // A label that named nothing so far must not start to act by accident.
    meta["default_task"] = kNoDefault;
  }
  const uint32_t task_id = adder.FreeTaskId();
  if (!meta.contains("masks")) meta["masks"] = Json::array();
  meta["masks"].push_back(adder.Meta(task_id));
  std::vector<std::vector<uint8_t>> blobs = Blobs(catalog);
  blobs.push_back(mask.rows.Blob());
  formats::CmfChanges changes;
  changes.masks = formats::cmf::SerializeMasks(std::move(meta), blobs);
  formats::RewriteCmf(source, changes, dst);
  return task_id;
}

void RemoveMask(const CmfFile& source, const std::string& name, const std::string& dst) {
  CheckTarget(source, dst);
  const formats::CmfContents& contents = source.contents();
  const MaskCatalog& catalog = contents.masks;
  const std::string& file = source.files().front();
  const auto is_it = [&](const TaskMask& mask) { return mask.name == name; };
  const auto found = std::find_if(catalog.masks.begin(), catalog.masks.end(), is_it);
  if (found == catalog.masks.end()) {
    throw Error(ErrorCode::kUnknownName,
                fmt::format("there is no mask '{}': {}", name, MaskNames(catalog)),
                {file, "masks"});
  }
  for (const TaskMask& mask : catalog.masks) {
    if (mask.meta.contains("parent") && mask.meta["parent"] == name) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("mask '{}' is the parent of '{}'", name, mask.name), {file, "masks"});
    }
  }
  Json meta = catalog.meta;
  std::vector<std::vector<uint8_t>> blobs = Blobs(catalog);
  const auto index = found - catalog.masks.begin();
  meta["masks"].erase(static_cast<size_t>(index));
  blobs.erase(blobs.begin() + index);
  if (meta.contains("default_task") && meta["default_task"] == name) {
    meta["default_task"] = kNoDefault;
  }
  formats::CmfChanges changes;
  changes.masks =
      blobs.empty() ? std::vector<uint8_t>() : formats::cmf::SerializeMasks(std::move(meta), blobs);
  const bool indexed =
      std::any_of(contents.sparse_index.begin(), contents.sparse_index.end(),
                  [&](const auto& entry) { return entry.task_id == found->task_id; });
  if (indexed) changes.index.emplace();
  formats::RewriteCmf(source, changes, dst);
}

}  // namespace moewe::convert
