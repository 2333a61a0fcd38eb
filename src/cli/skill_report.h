// Skills as `skill list`, `skill explain` and `skill route` show them.
#ifndef MOEWE_CLI_SKILL_REPORT_H_
#define MOEWE_CLI_SKILL_REPORT_H_

#include <span>
#include <string>

#include "base/json.h"
#include "formats/cmf/cmf_file.h"
#include "moewe/moewe.h"

namespace moewe::cli {

// The record without its routing matrices ("selection" keeps metric, phi_layer and rank), absent
// fields null, and what the file has of it: "tensors" (a count) and "bytes". A skill that travels
// without its base has all tensors of the file.
Json SkillJson(const formats::CmfFile& file, const formats::cmf::SkillRecord& skill);

// Every tensor: {"name" of what it replaces, "dtype", "nbytes", "backbone": {"dtype", "nbytes"}}.
Json SkillTensorList(const formats::CmfFile& file, const formats::cmf::SkillRecord& skill);

// "code · Code helper · 6 tensors, 37.1 KB · layers 1, 2 · routed by layer 2 · mask lean · ppl ..."
std::string SkillLine(const Json& skill);

// "ppl 17.9 with the skill, 21.4 without" or "not measured".
std::string QualityText(const Json& quality);

// A line a layer: which tensors, in what dtypes, how many bytes instead of how many.
void PrintSkillTensors(const Json& tensors);

// [{"id", "E", "phi_layer"}, ...]
Json EnergiesJson(std::span<const SkillEnergy> energies);

}  // namespace moewe::cli

#endif  // MOEWE_CLI_SKILL_REPORT_H_
