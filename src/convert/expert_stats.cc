#include "convert/expert_stats.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "formats/cmf/masks.h"
#include "moewe/error.h"

namespace moewe::convert {
namespace {

class Counter : public model::ForwardObserver {
 public:
  Counter(const model::Model& model, ExpertCounts* counts)
      : config_(model.config()), counts_(*counts) {}

  void OnRouter(int layer, const uint32_t* ids, const float* /*weights*/, size_t rows,
                size_t top_k) override {
    std::vector<uint64_t>& of_layer = counts_[static_cast<uint32_t>(layer) % config_.num_layers];
    of_layer.resize(std::max<size_t>(of_layer.size(), config_.moe.num_experts), 0);
    for (size_t i = 0; i < rows * top_k; ++i) ++of_layer[ids[i]];
  }

 private:
  const model::ModelConfig& config_;
  ExpertCounts& counts_;
};

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

void CountExperts(model::Model* model, std::span<const model::TokenId> ids, size_t window,
                  size_t chunk, model::KvType kv_type, const std::atomic<bool>& cancel,
                  ExpertCounts* counts) {
  Counter counter(*model, counts);
  model::KvPool pool(model->config(), kv_type, model::BlocksFor(window));
  std::vector<float> no_logits;
  for (size_t begin = 0; begin < ids.size(); begin += window) {
    if (cancel) throw Error(ErrorCode::kInterrupted, "stopped");
    model::Sequence sequence(&pool);
    const auto text = ids.subspan(begin, std::min(window, ids.size() - begin));
    for (size_t at = 0; at < text.size(); at += chunk) {
      model::SequenceChunk part;
      part.sequence = &sequence;
      part.tokens = text.subspan(at, std::min(chunk, text.size() - at));
      part.logits = model::SequenceChunk::Logits::kNone;
      model->Forward({&part, 1}, &no_logits, &counter);
    }
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

MaskDescription ExpertMask(const ExpertCounts& counts, double cover, const std::string& name,
                           const formats::cmf::Header& header, const std::string& file) {
  if (!(cover > 0.0 && cover <= 1.0)) {
    throw Error(ErrorCode::kUsage, fmt::format("--cover {} is not above 0 and at most 1", cover));
  }
  if (header.num_experts == 0) throw Error(ErrorCode::kUsage, "the model has no experts");
  MaskDescription mask(header);
  mask.name = name;
  size_t restricted = 0;
  Json rows = Json::object();
  for (const auto& [layer, of_layer] : counts) {
    if (layer >= header.num_layers || of_layer.size() != header.num_experts) {
      throw Error(ErrorCode::kParse,
                  fmt::format("layer {} with {} experts: the model has {} layers and {} experts",
                              layer, of_layer.size(), header.num_layers, header.num_experts),
                  {file, std::to_string(layer)});
    }
    const std::vector<uint32_t> kept = CoveringExperts(of_layer, cover);
    restricted += kept.size() < of_layer.size() ? 1 : 0;
    rows[std::to_string(layer)] = kept;
  }
  DescribeByJson({{"experts", rows}}, header, file, &mask);
  mask.description = fmt::format("experts that cover {} % of the routing, {} layers restricted",
                                 100.0 * cover, restricted);
  return mask;
}

}  // namespace moewe::convert
