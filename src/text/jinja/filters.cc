#include "text/jinja/filters.h"

#include <unordered_map>

namespace moewe::text::jinja {

FilterFunction FindFilter(std::string_view name) {
  static const auto kFilters = [] {
    std::unordered_map<std::string_view, FilterFunction> filters;
    for (const auto table :
         {TextFilters(), SequenceFilters(), SelectFilters(), NumberFilters(), HtmlFilters()}) {
      for (const FilterEntry& entry : table) filters.emplace(entry.name, entry.function);
    }
    return filters;
  }();
  const auto found = kFilters.find(name);
  return found == kFilters.end() ? nullptr : found->second;
}

}  // namespace moewe::text::jinja
