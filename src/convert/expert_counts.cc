#include "convert/expert_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "base/bytes_of.h"
#include "base/hash64.h"
#include "model/canonical.h"
#include "model/name_parts.h"
#include "moewe/error.h"
#include "platform/file_io.h"

namespace moewe::convert {
namespace {

constexpr uint64_t kLargestFile = uint64_t{1} << 30;

}  // namespace

Json ExpertCountsToJson(const ExpertCounts& counts) {
  Json json = Json::object();
  for (const auto& [layer, of_layer] : counts) json[std::to_string(layer)] = of_layer;
  return json;
}

ExpertCounts ExpertCountsFromJson(const Json& json, const std::string& file) {
  const auto fail = [&](const std::string& field, const std::string& problem) {
    throw Error(ErrorCode::kParse, problem, {file, field});
  };
  if (!json.is_object()) fail("", "the statistics are no object of layers");
  ExpertCounts counts;
  for (const auto& [key, list] : json.items()) {
    uint32_t layer = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), layer);
    if (error != std::errc() || end != key.data() + key.size()) fail(key, "is no layer number");
    if (!list.is_array() || list.empty()) fail(key, "is no list of counts");
    std::vector<uint64_t>& of_layer = counts[layer];
    if (!of_layer.empty()) fail(key, "names a layer twice");
    uint64_t total = 0;
    for (const Json& count : list) {
      if (!count.is_number_unsigned()) fail(key, "holds " + count.dump() + ", which is no count");
      of_layer.push_back(count.get<uint64_t>());
      const auto sum = CheckedAdd(total, of_layer.back());
      if (!sum) fail(key, "adds up to more than 64 bits");
      total = *sum;
    }
  }
  return counts;
}

void AddCounts(const ExpertCounts& more, const std::string& file, ExpertCounts* counts) {
  for (const auto& [layer, of_layer] : more) {
    std::vector<uint64_t>& sum = (*counts)[layer];
    if (sum.empty()) sum.resize(of_layer.size(), 0);
    if (sum.size() != of_layer.size()) {
      throw Error(ErrorCode::kParse,
                  fmt::format("layer {} has {} experts here and {} in the other statistics", layer,
                              of_layer.size(), sum.size()),
                  {file, std::to_string(layer)});
    }
    for (size_t e = 0; e < sum.size(); ++e) {
      const auto total = CheckedAdd(sum[e], of_layer[e]);
      if (!total) {
        throw Error(ErrorCode::kParse, "counts add up to more than 64 bits",
                    {file, std::to_string(layer)});
      }
      sum[e] = *total;
    }
  }
}

CountsFile ReadExpertCounts(std::span<const std::string> files) {
  CountsFile result;
  for (const std::string& file : files) {
    const std::vector<uint8_t> bytes = ReadWholeFile(file, kLargestFile);
    const ExpertCounts counts = ExpertCountsFromJson(ParseJson(bytes, file, "statistics"), file);
    if (counts.empty()) {
      throw Error(ErrorCode::kParse, "the statistics count nothing", {file, "statistics"});
    }
    AddCounts(counts, file, &result.counts);
    result.hash = HashBytes(bytes);
  }
  if (files.size() > 1) result.hash = HashOfCounts(ExpertCountsToJson(result.counts));
  return result;
}

uint64_t HashOfCounts(const Json& counts) {
  const std::string text = nlohmann::json(counts).dump();
  return HashBytes(BytesOf(text));
}

std::map<uint32_t, uint32_t> ExpertsByLayer(const formats::Checkpoint& checkpoint) {
  // A CMF file's names are canonical, also those of models that cannot run here.
  const std::vector<formats::TensorView> tensors =
      checkpoint.kind() == formats::CheckpointKind::kCmf
          ? checkpoint.tensors()
          : model::CanonicalTensors(checkpoint, model::ReadConfig(checkpoint));
  std::map<uint32_t, uint32_t> experts;
  for (const formats::TensorView& tensor : tensors) {
    std::string_view name = tensor.name;
    const auto layer = model::EatNumbered(&name, "model.layers.");
    if (!layer || name != ".mlp.gate.weight" || tensor.shape.size() != 2) continue;
    experts[*layer] = static_cast<uint32_t>(std::min<uint64_t>(tensor.shape[0], UINT32_MAX));
  }
  return experts;
}

void CheckCounts(const ExpertCounts& counts, const std::map<uint32_t, uint32_t>& experts,
                 const std::string& file) {
  for (const auto& [layer, of_layer] : counts) {
    const auto found = experts.find(layer);
    const uint32_t has = found == experts.end() ? 0 : found->second;
    if (of_layer.size() == has) continue;
    throw Error(ErrorCode::kParse,
                fmt::format("the counts are of another model: {} experts in layer {}, which has {} "
                            "here",
                            of_layer.size(), layer, has),
                {file, std::to_string(layer)});
  }
}

std::vector<uint32_t> CoveringExperts(std::span<const uint64_t> counts, double cover) {
  std::vector<uint32_t> order(counts.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return counts[a] > counts[b]; });
  const uint64_t total = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  if (total == 0) return order;
  uint64_t reached = 0;
  size_t kept = 0;
  while (static_cast<double>(reached) < cover * static_cast<double>(total) && kept < order.size()) {
    reached += counts[order[kept++]];
  }
  order.resize(kept);
  std::sort(order.begin(), order.end());
  return order;
}

std::map<uint32_t, std::vector<uint32_t>> CoveringExperts(
    const ExpertCounts& counts, double cover, const std::map<uint32_t, uint32_t>& experts,
    const std::string& file) {
  if (!(cover > 0.0 && cover <= 1.0)) {
    throw Error(ErrorCode::kUsage, fmt::format("--cover {} is not above 0 and at most 1", cover));
  }
  if (experts.empty()) throw Error(ErrorCode::kUsage, "the model has no experts");
  CheckCounts(counts, experts, file);
  std::map<uint32_t, std::vector<uint32_t>> kept;
  for (const auto& [layer, of_layer] : counts) {
    const bool counted =
        std::any_of(of_layer.begin(), of_layer.end(), [](uint64_t n) { return n > 0; });
    if (counted) kept[layer] = CoveringExperts(of_layer, cover);
  }
  if (kept.empty()) {
    throw Error(ErrorCode::kParse, "the statistics count nothing", {file, "statistics"});
  }
  return kept;
}

}  // namespace moewe::convert
