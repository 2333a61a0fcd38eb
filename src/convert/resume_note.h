// What a run that is continued, or not, tells its user.
#ifndef MOEWE_CONVERT_RESUME_NOTE_H_
#define MOEWE_CONVERT_RESUME_NOTE_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "formats/cmf/writer.h"

namespace moewe::convert {

// Empty if there is nothing to tell. `things` are what was counted: "tensors", "experts".
std::string ResumeNote(formats::CmfResume resumed, bool asked, size_t done, size_t total,
                       std::string_view things);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_RESUME_NOTE_H_
