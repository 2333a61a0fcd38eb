#include "convert/expert_stats.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace moewe::convert {
namespace {

// Hands on what is observed to the counts and to who else wants it.
class Counter : public model::ForwardObserver {
 public:
  Counter(const model::Model& model, const RoutingListener& listener, ExpertCounts* counts)
      : experts_(ExpertsByLayer(model.checkpoint())),
        num_layers_(model.config().num_layers),
        listener_(listener),
        counts_(*counts) {}

  void OnRouter(int visit, const uint32_t* ids, const float* /*weights*/, size_t rows,
                size_t top_k) override {
    const uint32_t layer = static_cast<uint32_t>(visit) % num_layers_;
    std::vector<uint64_t>& of_layer = counts_[layer];
    of_layer.resize(experts_.at(layer), 0);
    for (size_t i = 0; i < rows * top_k; ++i) ++of_layer[ids[i]];
    if (listener_) listener_(static_cast<uint32_t>(visit), {ids, rows * top_k}, top_k);
  }

 private:
  const std::map<uint32_t, uint32_t> experts_;
  const uint32_t num_layers_;
  const RoutingListener& listener_;
  ExpertCounts& counts_;
};

}  // namespace

void CountExperts(model::Model* model, std::span<const model::TokenId> ids, size_t window,
                  size_t chunk, model::KvType kv_type, const StepCallback& on_step,
                  const RoutingListener& listener, ExpertCounts* counts) {
  Counter counter(*model, listener, counts);
  model::KvPool pool(model->config(), kv_type, model::BlocksFor(window));
  std::vector<float> no_logits;
  for (size_t begin = 0; begin < ids.size(); begin += window) {
    model::Sequence sequence(&pool);
    const auto text = ids.subspan(begin, std::min(window, ids.size() - begin));
    for (size_t at = 0; at < text.size(); at += chunk) {
      model::SequenceChunk part;
      part.sequence = &sequence;
      part.tokens = text.subspan(at, std::min(chunk, text.size() - at));
      part.logits = model::SequenceChunk::Logits::kNone;
      model->Forward({&part, 1}, &no_logits, &counter);
      if (on_step) on_step(begin + at + part.tokens.size());
    }
  }
}

MaskDescription ExpertMask(const formats::CmfFile& source, const ExpertCounts& counts, double cover,
                           const std::string& name, const std::string& file) {
  const formats::cmf::Header& header = source.contents().header;
  const auto kept = CoveringExperts(counts, cover, ExpertsByLayer(source), file);
  MaskDescription mask(header);
  mask.name = name;
  size_t restricted = 0;
  Json rows = Json::object();
  for (const auto& [layer, experts] : kept) {
    restricted += experts.size() < counts.at(layer).size() ? 1 : 0;
    rows[std::to_string(layer)] = experts;
  }
  DescribeByJson({{"experts", rows}}, header, file, &mask);
  mask.description = fmt::format("experts that cover {} % of the routing, {} layers restricted",
                                 100.0 * cover, restricted);
  return mask;
}

}  // namespace moewe::convert
