// What several filters share.
#ifndef MOEWE_TEXT_JINJA_FILTER_TOOLS_H_
#define MOEWE_TEXT_JINJA_FILTER_TOOLS_H_

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace moewe::text::jinja {

// The value that an `attribute` argument leads to: "a.b", "a.0" or an index, by items first.
class AttributeGetter {
 public:
  // None: the item itself. `fallback` (may be null) replaces what is undefined.
  explicit AttributeGetter(const Value& attribute, const Value* fallback = nullptr);
  Value Get(const Value& item) const;

 private:
  std::vector<Value> parts_;
  const Value* fallback_;
};

// Strings in lower case, everything else as it is: the key by which filters compare unless told
// otherwise.
Value IgnoreCase(const Value& value);

// Stable; the order may be anything that Less() gives, also an inconsistent one.
void SortByKey(std::vector<Value>& items, const std::vector<Value>& keys, bool reverse);

// What a filter that Python writes as a generator gives: an iterator over `items`.
Value Generator(std::vector<Value> items);

[[noreturn]] void RaiseFilterArgument(std::string message);

}  // namespace moewe::text::jinja

#endif  // MOEWE_TEXT_JINJA_FILTER_TOOLS_H_
