// Whether bytes are UTF-8.
#ifndef MOEWE_BASE_UTF8_H_
#define MOEWE_BASE_UTF8_H_

#include <cstddef>
#include <string_view>

#include "base/byte_reader.h"
#include "base/bytes_of.h"
#include "moewe/error.h"

namespace moewe {

// How many bytes from the start are UTF-8, well-formed as Unicode defines it (no overlong forms, no
// surrogates, nothing past U+10FFFF): all of them, or where the first malformed character begins.
size_t Utf8Prefix(Bytes bytes);

inline bool IsUtf8(Bytes bytes) { return Utf8Prefix(bytes) == bytes.size(); }
inline bool IsUtf8(std::string_view text) { return IsUtf8(BytesOf(text)); }

// The one rule for texts that users give (prompts, messages, stop strings, names): throws
// Error{kUsage} with the offset of the first byte that is not UTF-8. `where` says whose text it is.
void RequireUtf8(std::string_view text, Where where);

// The one for a line that is shown and typed again (names, descriptions): UTF-8 as well, and no
// control characters (C0, DEL, C1).
void RequireLine(std::string_view text, Where where);

}  // namespace moewe

#endif  // MOEWE_BASE_UTF8_H_
