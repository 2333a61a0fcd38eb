// Counting which experts a text is routed to, and the task mask that follows (CMF v2 section 11.1).
#ifndef MOEWE_CONVERT_EXPERT_STATS_H_
#define MOEWE_CONVERT_EXPERT_STATS_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "convert/expert_counts.h"
#include "convert/mask_description.h"
#include "formats/cmf/cmf_file.h"
#include "model/model.h"

namespace moewe::convert {

// Told after each step how many tokens of the text are done; may throw to stop.
using StepCallback = std::function<void(size_t tokens)>;

// Told what each router chose: `ids` of some tokens in order, `top_k` each. `visit` counts layers,
// in a looped model on through the passes.
using RoutingListener =
    std::function<void(uint32_t visit, std::span<const uint32_t> ids, size_t top_k)>;

// Runs `ids` through `model` in windows of at most `window` tokens, each from an empty context, and
// counts every token's chosen experts in every layer. The counts do not depend on `chunk`. Both
// callbacks may be empty.
void CountExperts(model::Model* model, std::span<const model::TokenId> ids, size_t window,
                  size_t chunk, model::KvType kv_type, const StepCallback& on_step,
                  const RoutingListener& listener, ExpertCounts* counts);

// A mask `name` that lets each counted layer route to its covering experts only. `file` is where
// the counts are from. Throws what CoveringExperts throws.
MaskDescription ExpertMask(const formats::CmfFile& source, const ExpertCounts& counts, double cover,
                           const std::string& name, const std::string& file);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_EXPERT_STATS_H_
