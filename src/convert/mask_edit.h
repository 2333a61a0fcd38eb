// Adding task masks to a CMF file and removing them; everything else in the file stays.
#ifndef MOEWE_CONVERT_MASK_EDIT_H_
#define MOEWE_CONVERT_MASK_EDIT_H_

#include <string>

#include "convert/mask_description.h"
#include "formats/cmf/cmf_file.h"

namespace moewe::convert {

// Writes `source` (of a shard set shard 1, which has the masks) with one mask more to `dst`, which
// may be the source's own name. `make_default`: the file's default_task names it then. Returns the
// new task_id.
// Throws Error{kUsage} for a name that is empty, "none" or taken, Error{kUnknownName} for a parent
// that is no mask of the file, Error{kParse} for a mask that leaves a layer no expert to route to,
// Error{kUnsupported} for one that restricts a layer of another width than the header says, or
// experts that are chosen by groups.
uint32_t AddMask(const formats::CmfFile& source, const MaskDescription& mask, bool make_default,
                 const std::string& dst);

// The same without a mask. A sparse index goes if it speaks of the mask. Throws Error{kUnknownName}
// listing the names, Error{kUsage} if the mask is another one's parent.
void RemoveMask(const formats::CmfFile& source, const std::string& name, const std::string& dst);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_MASK_EDIT_H_
