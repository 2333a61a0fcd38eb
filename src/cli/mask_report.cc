#include "cli/mask_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

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

std::string MaskLine(const TaskMask& mask) {
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
  if (!mask.expert_rows.empty()) line += fmt::format(", {} experts", live(mask.expert_rows));
  line += fmt::format(", {} of {} layers", layers, mask.layer_gates.size());
  const bool measured = mask.meta.contains("quality") && mask.meta["quality"].is_object();
  line += measured ? " · quality " + mask.meta["quality"].dump() : " · quality not measured";
  return line;
}

void PrintMask(const Json& mask, const formats::cmf::Header& header) {
  for (const auto& [key, value] : mask.items()) {
    if (key.ends_with("_popcount") || key.ends_with("_hex") || key == "layer_gates") continue;
    fmt::print("{}: {}\n", key, value.is_string() ? value.get<std::string>() : value.dump());
  }
  const size_t layers = mask["head_popcount"].size();
  for (size_t row = 0; row < mask["ffn_popcount"].size(); ++row) {
    const size_t layer = row % layers;
    std::string line = mask["ffn_popcount"].size() > layers
                           ? fmt::format("layer {} pass {}: ", layer, row / layers)
                           : fmt::format("layer {}: ", layer);
    if (mask["layer_gates"][layer] == false) {
      line += "off";
    } else {
      line += fmt::format("{} of {} neurons, {} of {} heads", mask["ffn_popcount"][row].dump(),
                          header.intermediate_size, mask["head_popcount"][layer].dump(),
                          header.num_attention_heads);
      if (!mask["expert_popcount"].empty()) {
        line += fmt::format(", {} of {} experts", mask["expert_popcount"][layer].dump(),
                            header.num_experts);
      }
    }
    fmt::print("{}\n", line);
  }
}

}  // namespace moewe::cli
