// How often a router chose each expert: the routing counts that existing tools write and read.
#ifndef MOEWE_CONVERT_EXPERT_COUNTS_H_
#define MOEWE_CONVERT_EXPERT_COUNTS_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "formats/checkpoint.h"

namespace moewe::convert {

// Choices by layer and expert id. Layers without experts, or that no token reached, are absent.
using ExpertCounts = std::map<uint32_t, std::vector<uint64_t>>;

// {"LAYER": [count of expert 0, ...], ...}.
Json ExpertCountsToJson(const ExpertCounts& counts);

// Throws Error{kParse} naming the layer.
ExpertCounts ExpertCountsFromJson(const Json& json, const std::string& file);

struct CountsFile {
  ExpertCounts counts;
  uint64_t hash = 0;  // hash64 of the file; of several, of their sum as JSON
};

// The sum of one or more files. Throws Error{kNotFound, kIo}, and Error{kParse} for what holds no
// counts of any layer, and for files that do not belong together.
CountsFile ReadExpertCounts(std::span<const std::string> files);

// hash64 of counts as compact JSON with keys in text order, as existing tools have it.
uint64_t HashOfCounts(const Json& counts);

// Adds `more`. Throws Error{kParse} if a layer has another number of experts in both.
void AddCounts(const ExpertCounts& more, const std::string& file, ExpertCounts* counts);

// Experts of each layer that has a router, as its tensors say.
std::map<uint32_t, uint32_t> ExpertsByLayer(const formats::Checkpoint& checkpoint);

// Throws Error{kParse} naming `file` unless every layer of the counts has as many experts there as
// in `experts`.
void CheckCounts(const ExpertCounts& counts, const std::map<uint32_t, uint32_t>& experts,
                 const std::string& file);

// The smallest set of most-chosen experts whose choices reach `cover` of all, ascending; ties go to
// the lower id. All of them if nothing was counted.
std::vector<uint32_t> CoveringExperts(std::span<const uint64_t> counts, double cover);

// The same for every layer in which something was counted. Throws Error{kUsage} if `cover` is not
// in (0, 1], Error{kParse} naming `file` if nothing was counted anywhere, and what CheckCounts
// throws.
std::map<uint32_t, std::vector<uint32_t>> CoveringExperts(
    const ExpertCounts& counts, double cover, const std::map<uint32_t, uint32_t>& experts,
    const std::string& file);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_EXPERT_COUNTS_H_
