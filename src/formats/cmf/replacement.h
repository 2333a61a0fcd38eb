// What a skill's tensor may replace (section 9): one of the backbone, in its full shape, in any
// encoding.
#ifndef MOEWE_FORMATS_CMF_REPLACEMENT_H_
#define MOEWE_FORMATS_CMF_REPLACEMENT_H_

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "moewe/error.h"

namespace moewe::formats::cmf {

// `name` is the skill's tensor, `replaced` the name of what it stands for, `backbone` that tensor's
// shape, null if the file does not have it. Throws Error{kMissingTensor, kParse}.
inline void CheckReplacement(const std::string& name, const std::vector<uint64_t>& shape,
                             std::string_view replaced, const std::vector<uint64_t>* backbone,
                             const Where& where) {
  if (backbone == nullptr) {
    throw Error(ErrorCode::kMissingTensor,
                fmt::format("{} replaces {}, which the file does not have", name, replaced), where);
  }
  if (*backbone != shape) {
    throw Error(ErrorCode::kParse,
                fmt::format("{} has shape [{}]; what it replaces has [{}]", name,
                            fmt::join(shape, ", "), fmt::join(*backbone, ", ")),
                where);
  }
}

}  // namespace moewe::formats::cmf

#endif  // MOEWE_FORMATS_CMF_REPLACEMENT_H_
