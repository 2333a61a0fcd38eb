#include "model/task_mask.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "formats/cmf/cmf_file.h"
#include "formats/cmf/expert_numbering.h"
#include "moewe/error.h"

namespace moewe::model {
namespace {

using formats::cmf::MaskCatalog;

class Selector {
 public:
  Selector(const formats::cmf::TaskMask& mask, const formats::cmf::Header& header,
           const std::string& file, const ModelConfig& config, const Weights& weights)
      : mask_(mask), header_(header), file_(file), config_(config), weights_(weights) {}

  TaskMask Select() {
    TaskMask selected;
    selected.name = mask_.name;
    const uint32_t visits = config_.num_layers * config_.num_loops;
    for (uint32_t visit = 0; visit < visits; ++visit) selected.visits.push_back(Visit(visit));
    return selected;
  }

 private:
  LayerMask Visit(uint32_t visit) const {
    const uint32_t layer = visit % config_.num_layers;
    LayerMask result;
    result.live = mask_.layer_gates[layer];
    if (!result.live) return result;
    const LayerWeights& weights = weights_.layers[layer];
    if (!weights.is_moe) {
      result.neurons =
          Live(mask_.ffn_rows[visit % mask_.ffn_rows.size()], header_.intermediate_size,
               weights.ffn.gate.rows, layer, "neurons", &result.no_neurons);
    }
    if (!IsRecurrent(config_.layers[layer].mixer)) {
      result.heads = Live(mask_.head_rows[layer], header_.num_attention_heads,
                          config_.layers[layer].num_heads, layer, "heads", &result.no_heads);
    }
    if (weights.is_moe && !mask_.expert_rows.empty()) {
      bool none = false;
      const uint64_t experts = weights.moe.experts.size();
      const uint64_t width = formats::cmf::NumbersPresentExperts(mask_.meta)
                                 ? std::min(experts, header_.num_experts)
                                 : header_.num_experts;
      result.experts = Live(mask_.expert_rows[layer], width, experts, layer, "experts", &none);
      if (none) {
        throw Error(ErrorCode::kParse, fmt::format("leaves layer {} no expert to route to", layer),
                    WhereOf());
      }
      if (config_.moe.groups > 1 && !result.experts.empty()) {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("restricts the experts of layer {}, which are chosen by groups: "
                                "that is not supported yet",
                                layer),
                    WhereOf());
      }
    }
    return result;
  }

  Where WhereOf() const { return {file_, fmt::format("mask '{}'", mask_.name)}; }

  // The set bits of a row of `width` bits that speaks of a layer's `actual` parts; empty if all
  // are set, and if none is, which *none then says.
  std::vector<uint32_t> Live(Bytes row, uint64_t width, uint64_t actual, uint32_t layer,
                             const char* what, bool* none) const {
    std::vector<uint32_t> live;
    for (uint32_t i = 0; i < width; ++i) {
      if (formats::cmf::MaskBit(row, i)) live.push_back(i);
    }
    if (live.size() == width) return {};
    if (width != actual) {
      throw Error(
          ErrorCode::kUnsupported,
          fmt::format("restricts {} {} of layer {}, which has {}", width, what, layer, actual),
          WhereOf());
    }
    *none = live.empty();
    return live;
  }

  const formats::cmf::TaskMask& mask_;
  const formats::cmf::Header& header_;  // whose sizes the rows have
  const std::string& file_;
  const ModelConfig& config_;
  const Weights& weights_;
};

const formats::cmf::TaskMask* Find(const MaskCatalog& catalog, const std::string& name,
                                   const std::string& file) {
  const formats::cmf::TaskMask* found = nullptr;
  for (const formats::cmf::TaskMask& mask : catalog.masks) {
    if (mask.name != name) continue;
    if (found != nullptr) {
      throw Error(ErrorCode::kParse, fmt::format("two masks have the name '{}'", name),
                  {file, "masks"});
    }
    found = &mask;
  }
  return found;
}

[[noreturn]] void Unknown(const MaskCatalog& catalog, const std::string& name,
                          const std::string& file) {
  throw Error(ErrorCode::kUnknownName,
              fmt::format("there is no task '{}': {}", name, formats::cmf::MaskNames(catalog)),
              {file, "--task"});
}

}  // namespace

TaskMask SelectTaskMask(const formats::Checkpoint& checkpoint, const ModelConfig& config,
                        const Weights& weights, const std::string& task) {
  if (task == "none") return {};
  static const MaskCatalog kNoMasks;
  const std::string& file = checkpoint.files().front();
  const auto* cmf = dynamic_cast<const formats::CmfFile*>(&checkpoint);
  const MaskCatalog& catalog = cmf == nullptr ? kNoMasks : cmf->contents().masks;
  const std::string& name = task.empty() ? catalog.default_task : task;
  if (task.empty() && (name.empty() || name == "none")) return {};
  const formats::cmf::TaskMask* mask = Find(catalog, name, file);
  if (mask == nullptr) {
    if (task.empty()) return {};  // default_task is a label that need not name a mask
    Unknown(catalog, name, file);
  }
  TaskMask selected = Selector(*mask, cmf->contents().header, file, config, weights).Select();
  if (task.empty()) {
    LogInfo(fmt::format("task '{}' is active, the file's default; --task none runs without", name));
  }
  if (!mask->meta.contains("quality") || mask->meta["quality"].is_null()) {
    LogWarning(fmt::format("the quality of task mask '{}' was not measured", name));
  }
  return selected;
}

}  // namespace moewe::model
