#include "convert/expert_cut.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "base/hash64.h"
#include "convert/vbit_budget.h"
#include "moewe/error.h"

namespace moewe::convert {
namespace {

// The counts of the kept experts under their new numbers.
std::vector<uint64_t> CountsOf(const std::vector<uint32_t>& kept,
                               const std::vector<uint64_t>& counts) {
  std::vector<uint64_t> result;
  for (const uint32_t expert : kept) result.push_back(counts[expert]);
  return result;
}

// A router has a row an expert, and experts are numbered without gaps (section 11.1). Throws
// Error{kParse} otherwise: what is left would be no model either.
void CheckExperts(const formats::CmfFile& source, const std::map<uint32_t, uint32_t>& rows) {
  std::map<uint32_t, std::set<uint32_t>> present;
  for (const formats::TensorView& tensor : source.tensors()) {
    if (const auto parsed = ParseExpertTensor(tensor.name)) {
      present[parsed->layer].insert(parsed->expert);
    }
  }
  for (const auto& [layer, count] : rows) {
    const std::set<uint32_t>& experts = present[layer];
    if (experts.size() == count && (experts.empty() || *experts.rbegin() + 1 == count)) continue;
    throw Error(ErrorCode::kParse,
                fmt::format("the router has {} rows, the layer {} experts", count, experts.size()),
                {source.files().front(), fmt::format("model.layers.{}.mlp.gate.weight", layer)});
  }
}

}  // namespace

void RefuseExpertGroups(const formats::CmfFile& source) {
  const auto refuse = [&](std::string_view key) {
    throw Error(ErrorCode::kUnsupported,
                "the router chooses groups of experts by their numbers: none can be left out",
                {source.files().front(), fmt::format("arch.{}", key)});
  };
  constexpr std::array<std::string_view, 3> kGroupKeys = {"n_group", "num_expert_group",
                                                          "num_expert_groups"};
  const Json& arch = source.config().at("arch");
  if (arch.contains("moewe") && arch["moewe"].is_object() &&
      arch["moewe"].contains("expert_groups") && !arch["moewe"]["expert_groups"].is_null()) {
    refuse("moewe.expert_groups");
  }
  if (!arch.contains("moe") || !arch["moe"].is_object()) return;
  for (const std::string_view key : kGroupKeys) {
    const auto groups = arch["moe"].find(key);
    if (groups == arch["moe"].end() || !groups->is_number() || groups->get<double>() <= 1) continue;
    refuse(fmt::format("moe.{}", key));
  }
}

CountsFile EmbeddedCounts(const formats::CmfFile& source) {
  const std::string& file = source.files().front();
  const Json* at = &source.config();
  for (const char* key : {"provenance", "moe_defrag", "routing_counts"}) {
    if (!at->is_object() || !at->contains(key)) {
      throw Error(ErrorCode::kUsage,
                  "the file has no routing counts of an earlier cut: give --stats",
                  {file, "provenance.moe_defrag.routing_counts"});
    }
    at = &at->at(key);
  }
  return {ExpertCountsFromJson(*at, file), HashOfCounts(*at)};
}

ExpertCut PlanExpertCut(const formats::CmfFile& source, const CountsFile& counts, double cover,
                        const std::string& file) {
  RefuseExpertGroups(source);
  const std::map<uint32_t, uint32_t> experts = ExpertsByLayer(source);
  CheckExperts(source, experts);
  const auto covering = CoveringExperts(counts.counts, cover, experts, file);
  ExpertCut cut;
  ExpertCounts remaining;
  std::vector<size_t> kept_per_layer;
  for (const auto& [layer, kept] : covering) {
    const std::vector<uint64_t>& of_layer = counts.counts.at(layer);
    cut.dropped += of_layer.size() - kept.size();
    kept_per_layer.push_back(kept.size());
    remaining[layer] = CountsOf(kept, of_layer);
    cut.kept[layer] = std::make_shared<std::vector<uint32_t>>(kept);
  }
  if (cut.dropped == 0) {
    throw Error(
        ErrorCode::kUsage,
        fmt::format("nothing to cut: --cover {} needs every expert of the counted layers", cover),
        {file, ""});
  }
  cut.provenance = {{"tool", fmt::format("moewe experts defrag {}", MOEWE_VERSION)},
                    {"cover", cover},
                    {"stats_hash64", HashToHex(counts.hash)},
                    {"num_experts_pre", source.contents().header.num_experts},
                    {"kept_per_layer", kept_per_layer},
                    {"routing_counts", ExpertCountsToJson(remaining)}};
  return cut;
}

}  // namespace moewe::convert
