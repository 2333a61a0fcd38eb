// Which experts a task needs, and the cut that leaves the others out (CMF v2 section 11.1).
#ifndef MOEWE_CONVERT_EXPERT_CUT_H_
#define MOEWE_CONVERT_EXPERT_CUT_H_

#include <string>

#include "base/json.h"
#include "convert/cut.h"
#include "convert/expert_counts.h"
#include "formats/cmf/cmf_file.h"

namespace moewe::convert {

// Kept experts by layer with the block provenance.moe_defrag that says so.
struct ExpertCut {
  std::map<uint32_t, Kept> kept;
  Json provenance;
  uint64_t dropped = 0;  // experts
};

// The counts that an earlier cut left in the header, provenance.moe_defrag.routing_counts. Throws
// Error{kUsage} if there are none, Error{kParse} if they are malformed.
CountsFile EmbeddedCounts(const formats::CmfFile& source);

// Throws Error{kUnsupported} if experts are chosen by groups: these are by number, and without some
// experts others would be in them.
void RefuseExpertGroups(const formats::CmfFile& source);

// In every counted layer the experts that CoveringExperts gives, at least one; other layers stay
// whole. `file` is where the counts are from. Throws what CoveringExperts throws, Error{kUsage} if
// nothing would go, Error{kUnsupported} for a router that chooses groups of experts first,
// Error{kParse} for a layer whose router and experts do not belong together.
ExpertCut PlanExpertCut(const formats::CmfFile& source, const CountsFile& counts, double cover,
                        const std::string& file);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_EXPERT_CUT_H_
