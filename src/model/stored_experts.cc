#include "model/stored_experts.h"

#include <algorithm>
#include <array>

#include "experts/expert_reads.h"

namespace moewe::model {
namespace {

using formats::TensorView;

// Row starts of a vbit matrix are found when it was read, and kept beside it.
uint64_t RowStartBytes(const TensorView& tensor) {
  return tensor.dtype == DType::kVbit ? (tensor.matrix().rows + 1) * sizeof(uint64_t) : 0;
}

}  // namespace

double ExpertBytesPerToken(const StoredExperts& stored, const ModelConfig& config) {
  double bytes = 0.0;
  for (uint32_t visit = 0; visit < config.num_visits(); ++visit) {
    const auto& experts = stored.layers[visit % config.num_layers];
    if (experts.empty()) continue;
    double all = 0.0;
    for (const experts::StoredExpert& expert : experts) {
      for (const experts::Extent& part : expert) all += static_cast<double>(part.nbytes);
    }
    const auto count = static_cast<double>(experts.size());
    bytes += all / count * std::min(count, static_cast<double>(config.moe.top_k));
  }
  return bytes;
}

uint64_t CommonReadBytes(const StoredExperts& stored) {
  for (const auto& layer : stored.layers) {
    if (layer.empty()) continue;
    const experts::ReadPlan plan = experts::PlanReads(layer.front());
    if (plan.count != 0) return plan.reads[0].bytes;
  }
  return 0;
}

StoredExperts FindStoredExperts(const Weights& weights, const ModelConfig& config) {
  StoredExperts found;
  found.layers.resize(weights.layers.size());
  found.experts.resize(weights.layers.size());
  uint64_t row_starts = 0;
  for (size_t l = 0; l < weights.layers.size(); ++l) {
    const MoeWeights& moe = weights.layers[l].moe;
    for (uint32_t e = 0; e < moe.expert_tensors.size(); ++e) {
      experts::StoredExpert stored;
      uint64_t bytes = 0;
      uint64_t starts = 0;
      bool in_files = true;
      for (size_t part = 0; part < stored.size(); ++part) {
        const TensorView& tensor = weights.tensors[moe.expert_tensors[e][part]];
        stored[part] = {tensor.file_index, tensor.file_offset, tensor.bytes.size()};
        bytes += tensor.bytes.size();
        starts += RowStartBytes(tensor);
        in_files &= tensor.file_offset != formats::kNotInFile && !tensor.bytes.empty();
      }
      if (!in_files) {
        found.held_bytes += bytes + starts;
        continue;
      }
      found.layers[l].push_back(stored);
      found.experts[l].push_back(e);
      ++found.count;
      row_starts = std::max(row_starts, starts);
    }
  }
  if (found.count == 0) return found;
  found.read_bytes = experts::ExpertStore::SlotBytes(found.layers);
  found.slot_bytes = found.read_bytes + row_starts;
  found.least_slots =
      experts::ExpertStore::MinArenaBytes(found.layers, config.moe.top_k) / found.read_bytes;
  return found;
}

}  // namespace moewe::model
