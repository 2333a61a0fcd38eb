// Python's two ways of formatting: `'%s' % x` and `'{}'.format(x)`.
#ifndef MOEWE_TEXT_JINJA_FORMAT_H_
#define MOEWE_TEXT_JINJA_FORMAT_H_

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace moewe::text::jinja {

// The format specification mini-language:
// [[fill]align][sign][#][0][width][grouping][.precision][type].
struct FormatSpec {
  std::string fill = " ";
  char align = '\0';  // < > ^ =
  char sign = '\0';   // + - space
  bool alternate = false;
  size_t width = 0;
  char grouping = '\0';  // , _
  std::optional<int> precision;
  char type = '\0';
};

inline bool IsAsciiDigit(char c) { return c >= '0' && c <= '9'; }

// ValueError for a bad one.
FormatSpec ParseFormatSpec(std::string_view text);
// A number, padded.
std::string FormatNumber(const Value& number, const FormatSpec& spec);
// format(value, spec).
Str FormatValue(const Value& value, const Str& spec);
// `text` padded to spec.width (in code points), by default to the left or (numbers) the right.
Str Pad(const Str& text, const FormatSpec& spec, char default_align);

Str PercentFormat(const Str& format, const Value& values);
Str BraceFormat(const Str& format, const Args& args);

// Digits of a float as C's printf gives them; `type` one of e f g E F G.
std::string FormatDigits(double magnitude, int precision, char type, bool alternate);

}  // namespace moewe::text::jinja

#endif  // MOEWE_TEXT_JINJA_FORMAT_H_
