// Python's operators on values.
#ifndef MOEWE_TEXT_JINJA_OPS_H_
#define MOEWE_TEXT_JINJA_OPS_H_

#include <compare>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace moewe::text::jinja {

enum class BinaryOp { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
enum class CompareOp { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

bool Truth(const Value& value);
bool Equals(const Value& a, const Value& b);
// TypeError for things that have no order.
bool Less(const Value& a, const Value& b);
bool Compare(CompareOp op, const Value& a, const Value& b);
bool Contains(const Value& container, const Value& item);
Value Binary(BinaryOp op, const Value& a, const Value& b);
Value Negate(const Value& value);
Value Positive(const Value& value);
// All items, in order: TypeError if not iterable. An iterator is used up by it.
std::vector<Value> Iterate(const Value& value);
bool Iterable(const Value& value);
int64_t Length(const Value& value);  // TypeError if it has none
bool Callable(const Value& value);
// The integer for an index or count; TypeError for anything else. Big ones saturate.
int64_t ToIndex(const Value& value);
// Code points of a string as values.
std::vector<Value> Characters(const Str& str);
Value CharacterAt(const Str& str, size_t index);  // by code point; the index is valid

}  // namespace moewe::text::jinja

#endif  // MOEWE_TEXT_JINJA_OPS_H_
