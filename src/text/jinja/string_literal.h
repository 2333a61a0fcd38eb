// The escapes of a string literal, those of Python's unicode-escape codec.
#ifndef MOEWE_TEXT_JINJA_STRING_LITERAL_H_
#define MOEWE_TEXT_JINJA_STRING_LITERAL_H_

#include <optional>
#include <string>
#include <string_view>

namespace moewe::text::jinja {

// The value of a literal's inside, or nothing and a message in `error`.
std::optional<std::string> UnescapeLiteral(std::string_view inside, std::string& error);

}  // namespace moewe::text::jinja

#endif  // MOEWE_TEXT_JINJA_STRING_LITERAL_H_
