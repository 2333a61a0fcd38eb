// Numbers from text, and rounding, as Python's int(), float() and round() do it.
#ifndef MOEWE_TEXT_JINJA_NUMBERS_H_
#define MOEWE_TEXT_JINJA_NUMBERS_H_

#include <optional>
#include <string_view>

#include "text/jinja/value.h"

namespace moewe::text::jinja {

// int(text, base); nothing where Python raises ValueError. Base 0 or 2 to 36.
std::optional<Value> ParseInteger(std::string_view text, int base);
// float(text); nothing where Python raises ValueError.
std::optional<double> ParseFloat(std::string_view text);
// round(number, digits).
Value RoundNumber(const Value& number, int64_t digits);
// int(value) of a float: OverflowError for infinity, ValueError for NaN.
Value Truncate(double value);

}  // namespace moewe::text::jinja

#endif  // MOEWE_TEXT_JINJA_NUMBERS_H_
