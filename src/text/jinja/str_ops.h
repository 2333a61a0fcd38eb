// Operations on strings that keep the origin of every byte. Shared by methods and filters.
#ifndef MOEWE_TEXT_JINJA_STR_OPS_H_
#define MOEWE_TEXT_JINJA_STR_OPS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/jinja/str.h"

namespace moewe::text::jinja {

// Which ends strip() works on.
enum class Ends { kBoth, kLeft, kRight };
// Without the characters of `chars` (null: whitespace) at the ends.
Str Strip(const Str& str, Ends ends, const std::string* chars = nullptr);
// At runs of whitespace (separator null) or at every separator; at most `limit` cuts if that is not
// negative.
std::vector<Str> Split(const Str& str, const std::string* separator, int64_t limit);
std::vector<Str> SplitFromRight(const Str& str, const std::string* separator, int64_t limit);
std::vector<Str> SplitLines(const Str& str, bool keep_ends);
// At most `limit` replacements if that is not negative.
Str Replace(const Str& str, std::string_view old_text, const Str& new_text, int64_t limit);
// Byte position in [begin, end), or npos. Linear time.
size_t Find(std::string_view text, std::string_view part, size_t begin = 0);
size_t FindLast(std::string_view text, std::string_view part);
Str JoinStrings(const std::vector<Str>& parts, const Str& separator);

}  // namespace moewe::text::jinja

#endif  // MOEWE_TEXT_JINJA_STR_OPS_H_
