// The filters, by name.
#ifndef MOEWE_TEXT_JINJA_FILTERS_H_
#define MOEWE_TEXT_JINJA_FILTERS_H_

#include <span>
#include <string_view>

#include "text/jinja/value.h"

namespace moewe::text::jinja {

using FilterFunction = Value (*)(Interpreter& interpreter, const Value& input, Args& args);
struct FilterEntry {
  std::string_view name;
  FilterFunction function;
};

// Null if there is none of this name.
FilterFunction FindFilter(std::string_view name);

// One table a file.
std::span<const FilterEntry> TextFilters();
std::span<const FilterEntry> SequenceFilters();
std::span<const FilterEntry> SelectFilters();
std::span<const FilterEntry> NumberFilters();
std::span<const FilterEntry> HtmlFilters();

}  // namespace moewe::text::jinja

#endif  // MOEWE_TEXT_JINJA_FILTERS_H_
