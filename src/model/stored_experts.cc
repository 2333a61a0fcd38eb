#include "model/stored_experts.h"

#include <algorithm>
#include <array>

namespace moewe::model {
namespace {

using formats::TensorView;

// Row starts of a vbit matrix are found when it was read, and kept beside it.
uint64_t RowStartBytes(const TensorView& tensor) {
  return tensor.dtype == DType::kVbit ? (tensor.matrix().rows + 1) * sizeof(uint64_t) : 0;
}

}  // namespace

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
