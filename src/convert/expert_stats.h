// How often each expert was chosen, and the expert sets that follow from it (CMF v2 section 11.1).
#ifndef MOEWE_CONVERT_EXPERT_STATS_H_
#define MOEWE_CONVERT_EXPERT_STATS_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "convert/mask_description.h"
#include "model/model.h"

namespace moewe::convert {

// Choices by layer and expert id. Layers without experts, or that no token reached, are absent.
using ExpertCounts = std::map<uint32_t, std::vector<uint64_t>>;

// {"LAYER": [count of expert 0, ...], ...}: what existing tools write and read.
Json ExpertCountsToJson(const ExpertCounts& counts);

// Throws Error{kParse} naming the layer.
ExpertCounts ExpertCountsFromJson(const Json& json, const std::string& file);

// Adds `more`. Throws Error{kParse} if a layer has another number of experts in both.
void AddCounts(const ExpertCounts& more, const std::string& file, ExpertCounts* counts);

// Runs `ids` through `model` in windows of at most `window` tokens, each from an empty context, and
// counts every token's chosen experts in every layer. The counts do not depend on `chunk`. Throws
// Error{kInterrupted} before the next window once `cancel` is set.
void CountExperts(model::Model* model, std::span<const model::TokenId> ids, size_t window,
                  size_t chunk, model::KvType kv_type, const std::atomic<bool>& cancel,
                  ExpertCounts* counts);

// The smallest set of most-chosen experts whose choices reach `cover` of all, ascending; ties go to
// the lower id. All of them if nothing was counted.
std::vector<uint32_t> CoveringExperts(std::span<const uint64_t> counts, double cover);

// A mask `name` that lets each counted layer route to its covering experts only. Throws
// Error{kParse} naming `file` for counts that are not of this model, Error{kUsage} if the model has
// no experts or `cover` is not in (0, 1].
MaskDescription ExpertMask(const ExpertCounts& counts, double cover, const std::string& name,
                           const formats::cmf::Header& header, const std::string& file);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_EXPERT_STATS_H_
