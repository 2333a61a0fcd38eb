// Line filling (Python's textwrap) and pretty printing (pprint).
#ifndef MOEWE_TEXT_JINJA_TEXT_WRAP_H_
#define MOEWE_TEXT_JINJA_TEXT_WRAP_H_

#include <vector>

#include "text/jinja/value.h"

namespace moewe::text::jinja {

// One line into lines of at most `width` code points.
std::vector<Str> WrapLine(const Str& line, size_t width, bool break_long_words,
                          bool break_on_hyphens);

// pprint.pformat: keys sorted, one item a line where the whole does not fit 80 columns.
Str PrettyRepr(const Value& value);

}  // namespace moewe::text::jinja

#endif  // MOEWE_TEXT_JINJA_TEXT_WRAP_H_
