// Whether a file may be written without harm to what is read.
#ifndef MOEWE_CONVERT_DESTINATION_H_
#define MOEWE_CONVERT_DESTINATION_H_

#include <string>

#include "formats/checkpoint.h"

namespace moewe::convert {

// Throws Error{kUsage} if `dst`, or a file that is written beside it on the way, is a file of the
// source (also by another path, a symbolic or a hard link), or if it lies in the folder of a
// Hugging Face source: another model file there would change what the folder is. Touches nothing.
void CheckDestination(const formats::Checkpoint& source, const std::string& dst);

// What tells whether a source is still the same: sizes and times of its files, and a fingerprint of
// what their headers say. The same for the same files under another path.
std::string SourceIdentity(const formats::Checkpoint& source);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_DESTINATION_H_
