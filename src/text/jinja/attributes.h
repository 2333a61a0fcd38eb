// What `x.y`, `x[y]` and `x[a:b]` give, within the sandbox.
#ifndef MOEWE_TEXT_JINJA_ATTRIBUTES_H_
#define MOEWE_TEXT_JINJA_ATTRIBUTES_H_

#include <optional>
#include <string_view>

#include "text/jinja/value.h"

namespace moewe::text::jinja {

// x.y: the attribute, else the item, else undefined.
Value GetAttribute(const Value& object, std::string_view name);
// x[y]: the item, else (for strings) the attribute, else undefined.
Value GetItem(const Value& object, const Value& key);
// The attribute alone: methods and properties. What the sandbox forbids is an undefined that fails
// with SecurityError when used.
std::optional<Value> FindAttribute(const Value& object, std::string_view name);
// x[start:stop:step]; None for what is left out.
Value GetSlice(const Value& object, const Value& start, const Value& stop, const Value& step);

// A method of a built-in type.
using MethodFunction = Value (*)(Interpreter& interpreter, const Value& self, Args& args);
MethodFunction FindStringMethod(std::string_view name);
MethodFunction FindContainerMethod(Kind kind, std::string_view name);
MethodFunction FindNumberMethod(Kind kind, std::string_view name);

}  // namespace moewe::text::jinja

#endif  // MOEWE_TEXT_JINJA_ATTRIBUTES_H_
