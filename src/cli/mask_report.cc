#include "cli/mask_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/shown.h"
#include "convert/expert_counts.h"
#include "formats/cmf/expert_numbering.h"

namespace moewe::cli {
namespace {

using formats::cmf::LiveBits;
using formats::cmf::TaskMask;

Json Counts(const std::vector<Bytes>& rows) {
  Json counts = Json::array();
  for (const Bytes row : rows) counts.push_back(LiveBits(row));
  return counts;
}

Json Hex(const std::vector<Bytes>& rows) {
  Json list = Json::array();
  for (const Bytes row : rows) list.push_back(fmt::format("{:02x}", fmt::join(row, "")));
  return list;
}

// One a row of FFN bits: where those are of visits, a layer's gate counts for each of its visits.
std::vector<bool> GatesOfRows(const TaskMask& mask) {
  std::vector<bool> gates = mask.layer_gates;
  while (gates.size() < mask.ffn_rows.size()) {
    gates.push_back(gates[gates.size() - mask.layer_gates.size()]);
  }
  return gates;
}

struct LiveExperts {
  uint64_t live = 0;
  uint64_t all = 0;         // 0: the layer has none
  bool before_cut = false;  // of those that the layer had before it was cut
};

// What a mask's expert fields say of the layers as they are, which a cut may have left fewer
// experts than the fields have bits.
class LayersWithExperts {
 public:
  LayersWithExperts(const formats::CmfFile& file, const TaskMask& mask)
      : num_experts_(file.contents().header.num_experts),
        mask_(mask),
        numbers_present_(formats::cmf::NumbersPresentExperts(mask.meta)) {
    if (!mask.expert_rows.empty()) present_ = convert::ExpertsByLayer(file);
  }

  LiveExperts Of(uint32_t layer) const {
    const auto found = present_.find(layer);
    if (found == present_.end()) return {};
    LiveExperts result;
    result.all = numbers_present_ ? std::min<uint64_t>(found->second, num_experts_) : num_experts_;
    result.before_cut = result.all != found->second;
    const Bytes row = mask_.expert_rows[layer];
    for (uint64_t i = 0; i < result.all; ++i) {
      result.live += formats::cmf::MaskBit(row, i) ? 1 : 0;
    }
    return result;
  }

 private:
  uint64_t num_experts_;
  const TaskMask& mask_;
  bool numbers_present_;
  std::map<uint32_t, uint32_t> present_;
};

}  // namespace

Json MaskList(const formats::CmfFile& file, MaskRowsAs rows) {
  Json list = Json::array();
  for (const TaskMask& mask : file.contents().masks.masks) {
    Json item = mask.meta;
    item["ffn_popcount"] = Counts(mask.ffn_rows);
    item["head_popcount"] = Counts(mask.head_rows);
    item["expert_popcount"] = Counts(mask.expert_rows);
    item["layer_gates"] = GatesOfRows(mask);
    if (rows == MaskRowsAs::kHex) {
      item["ffn_masks_hex"] = Hex(mask.ffn_rows);
      item["head_masks_hex"] = Hex(mask.head_rows);
      item["expert_masks_hex"] = Hex(mask.expert_rows);
    }
    list.push_back(std::move(item));
  }
  return list;
}

std::string MaskLine(const formats::CmfFile& file, const TaskMask& mask) {
  const auto live = [](const std::vector<Bytes>& rows) {
    uint64_t count = 0;
    for (const Bytes row : rows) count += LiveBits(row);
    return count;
  };
  const auto layers =
      static_cast<size_t>(std::count(mask.layer_gates.begin(), mask.layer_gates.end(), true));
  std::string line = fmt::format("{} {}", mask.task_id, mask.name);
  if (mask.meta.contains("priority") && mask.meta["priority"].is_string()) {
    line += " · " + mask.meta["priority"].get<std::string>();
  }
  line += fmt::format(" · live: {} neurons, {} heads", live(mask.ffn_rows), live(mask.head_rows));
  if (!mask.expert_rows.empty()) {
    const LayersWithExperts experts(file, mask);
    uint64_t count = 0;
    for (uint32_t layer = 0; layer < mask.expert_rows.size(); ++layer) {
      count += experts.Of(layer).live;
    }
    line += fmt::format(", {} experts", count);
  }
  line += fmt::format(", {} of {} layers", layers, mask.layer_gates.size());
  const bool measured = mask.meta.contains("quality") && mask.meta["quality"].is_object();
  line += measured ? " · quality " + mask.meta["quality"].dump() : " · quality not measured";
  if (mask.name == file.contents().masks.default_task) line += " · default";
  return Shown(line);
}

void PrintMask(const formats::CmfFile& file, const TaskMask& mask) {
  for (const auto& [key, value] : mask.meta.items()) {
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    fmt::print("{}: {}\n", Shown(key), Shown(text));
  }
  const formats::cmf::Header& header = file.contents().header;
  const LayersWithExperts experts(file, mask);
  const size_t layers = mask.head_rows.size();
  for (size_t row = 0; row < mask.ffn_rows.size(); ++row) {
    const size_t layer = row % layers;
    std::string line = mask.ffn_rows.size() > layers
                           ? fmt::format("layer {} pass {}: ", layer, row / layers)
                           : fmt::format("layer {}: ", layer);
    if (!mask.layer_gates[layer]) {
      line += "off";
    } else {
      line += fmt::format("{} of {} neurons, {} of {} heads", LiveBits(mask.ffn_rows[row]),
                          header.intermediate_size, LiveBits(mask.head_rows[layer]),
                          header.num_attention_heads);
      const LiveExperts of_layer = experts.Of(static_cast<uint32_t>(layer));
      if (!mask.expert_rows.empty() && of_layer.all != 0) {
        line += fmt::format(", {} of {} experts{}", of_layer.live, of_layer.all,
                            of_layer.before_cut ? " as they were before the file was cut" : "");
      }
    }
    fmt::print("{}\n", line);
  }
}

}  // namespace moewe::cli
