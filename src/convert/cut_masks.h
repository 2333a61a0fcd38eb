// The task masks of a file whose experts are being cut.
#ifndef MOEWE_CONVERT_CUT_MASKS_H_
#define MOEWE_CONVERT_CUT_MASKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "convert/cut.h"
#include "formats/cmf/cmf_file.h"

namespace moewe::convert {

struct CutMasks {
  std::vector<uint8_t> section;  // empty = none is left
  std::vector<std::string>
      renumbered;                    // names of masks with expert fields, which name the new ones
  std::vector<std::string> dropped;  // names of masks that have no meaning any more
  bool index_stays = true;           // the sparse index speaks of no dropped mask
};

// Masks with expert fields get those of the kept experts and say so in their metadata
// (formats/cmf/expert_numbering.h). Dropped are those that would leave a layer no expert to route
// to, and those whose bits name experts from before an earlier cut. A default_task or parent that
// names a dropped one goes with it.
CutMasks RenumberExperts(const formats::CmfFile& source, const Cut& cut);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_CUT_MASKS_H_
