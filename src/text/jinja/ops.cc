#include "text/jinja/ops.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "text/jinja/budget.h"
#include "text/jinja/objects.h"
#include "text/jinja/unicode.h"

namespace moewe::text::jinja {
namespace {

// -1, 0, 1; nothing if one is NaN.
std::optional<int> CompareNumbers(const Value& a, const Value& b) {
  const auto order = [](auto x, auto y) { return x < y ? -1 : x > y ? 1 : 0; };
  const auto small = [](const Value& v) { return v.kind() == Kind::kInt || v.is_bool(); };
  if (small(a) && small(b)) return order(a.small_int(), b.small_int());
  if (a.is_float() && b.is_float()) {
    if (std::isnan(a.real()) || std::isnan(b.real())) return std::nullopt;
    return order(a.real(), b.real());
  }
  if (a.is_float()) {
    if (std::isnan(a.real())) return std::nullopt;
    return -BigInt::Compare(b.ToBig(), a.real());
  }
  if (b.is_float()) {
    if (std::isnan(b.real())) return std::nullopt;
    return BigInt::Compare(a.ToBig(), b.real());
  }
  return BigInt::Compare(a.ToBig(), b.ToBig());
}

bool ItemsEqual(const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!Equals(a[i], b[i])) return false;
  }
  return true;
}

bool DictsEqual(const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  for (const Dict::Entry& entry : a.entries()) {
    const Value* other = b.Find(entry.key);
    if (other == nullptr || !Equals(entry.value, *other)) return false;
  }
  return true;
}

const char* Symbol(CompareOp op) {
  switch (op) {
    case CompareOp::kLess:
      return "<";
    case CompareOp::kLessEqual:
      return "<=";
    case CompareOp::kGreater:
      return ">";
    default:
      return ">=";
  }
}

template <typename T>
bool Ordered(CompareOp op, const T& a, const T& b) {
  switch (op) {
    case CompareOp::kLess:
      return a < b;
    case CompareOp::kLessEqual:
      return a <= b;
    case CompareOp::kGreater:
      return a > b;
    default:
      return a >= b;
  }
}

// <, <=, > and >=.
bool CompareOrder(CompareOp op, const Value& a, const Value& b) {
  const DepthGuard depth;
  Budget::Spend(1);
  if (a.is_undefined()) a.undefined().Fail();
  if (b.is_undefined()) b.undefined().Fail();
  if (a.is_number() && b.is_number()) {
    const auto order = CompareNumbers(a, b);
    return order && Ordered(op, *order, 0);
  }
  if (a.is_string() && b.is_string()) {
    Budget::SpendBytes(std::min(a.text().size(), b.text().size()));
    return Ordered(op, a.text().compare(b.text()), 0);
  }
  if (a.kind() == b.kind() && (a.is_list() || a.is_tuple())) {
    const auto& x = a.items();
    const auto& y = b.items();
    for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
      if (!Equals(x[i], y[i])) return CompareOrder(op, x[i], y[i]);
    }
    return Ordered(op, x.size(), y.size());
  }
  RaiseTypeError(std::string("'") + Symbol(op) + "' not supported between instances of '" +
                 TypeName(a) + "' and '" + TypeName(b) + "'");
}

bool ContainsText(std::string_view text, std::string_view part) {
  Budget::SpendBytes(text.size() + part.size());
  return part.empty() || memmem(text.data(), text.size(), part.data(), part.size()) != nullptr;
}

}  // namespace

bool Truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.small_int() != 0;
    case Kind::kBigInt:
      return true;
    case Kind::kFloat:
      return value.real() != 0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.items().empty();
    case Kind::kDict:
      return value.dict().size() != 0;
    case Kind::kObject:
      break;
  }
  return value.host().Length().value_or(1) != 0;
}

bool Equals(const Value& a, const Value& b) {
  const DepthGuard depth;
  Budget::Spend(1);
  if (a.is_number() && b.is_number()) return CompareNumbers(a, b) == 0;
  if (a.kind() == Kind::kObject) {
    if (a.identity() == b.identity()) return true;
    return a.host().Equals(b).value_or(false);
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      if (a.text().size() != b.text().size()) return false;
      Budget::SpendBytes(a.text().size());
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple:
      return a.identity() == b.identity() || ItemsEqual(a.items(), b.items());
    case Kind::kDict:
      return a.identity() == b.identity() || DictsEqual(a.dict(), b.dict());
    default:
      return false;
  }
}

bool Less(const Value& a, const Value& b) { return CompareOrder(CompareOp::kLess, a, b); }

bool Compare(CompareOp op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOp::kEqual:
      return Equals(a, b);
    case CompareOp::kNotEqual:
      return !Equals(a, b);
    case CompareOp::kIn:
      return Contains(b, a);
    case CompareOp::kNotIn:
      return !Contains(b, a);
    default:
      return CompareOrder(op, a, b);
  }
}

bool Contains(const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kString:
      if (!item.is_string()) {
        RaiseTypeError("'in <string>' requires string as left operand, not " + TypeName(item));
      }
      return ContainsText(container.text(), item.text());
    case Kind::kDict:
      return container.dict().Find(item) != nullptr;
    case Kind::kList:
    case Kind::kTuple:
      for (const Value& candidate : container.items()) {
        if (Equals(candidate, item)) return true;
      }
      return false;
    case Kind::kUndefined:
      return false;
    case Kind::kObject:
      if (const auto contains = container.host().Contains(item)) return *contains;
      break;
    default:
      break;
  }
  if (!Iterable(container)) {
    RaiseTypeError("argument of type '" + TypeName(container) + "' is not iterable");
  }
  for (const Value& candidate : Iterate(container)) {
    if (Equals(candidate, item)) return true;
  }
  return false;
}

std::vector<Value> Characters(const Str& str) {
  std::vector<Value> characters;
  for (size_t pos = 0; pos < str.text.size();) {
    const size_t begin = pos;
    NextCodePoint(str.text, pos);
    characters.push_back(Value::String(str.Substr(begin, pos)));
  }
  return characters;
}

Value CharacterAt(const Str& str, size_t index) {
  size_t begin = OffsetOfCodePoint(str.text, index);
  Budget::SpendBytes(begin);
  size_t end = begin;
  NextCodePoint(str.text, end);
  Str character = str.Substr(begin, end);
  character.safe = str.safe;
  return Value::String(std::move(character));
}

std::vector<Value> Iterate(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return {};
    case Kind::kString:
      return Characters(value.str());
    case Kind::kList:
    case Kind::kTuple:
      Budget::Spend(value.items().size() / 4);
      return value.items();
    case Kind::kDict: {
      std::vector<Value> keys;
      for (const Dict::Entry& entry : value.dict().entries()) keys.push_back(entry.key);
      Budget::Spend(keys.size() / 4);
      return keys;
    }
    case Kind::kObject:
      return value.host().Iterate();
    default:
      RaiseTypeError("'" + TypeName(value) + "' object is not iterable");
  }
}

bool Iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
      return true;
    case Kind::kObject:
      return value.host().Iterable();
    default:
      return false;
  }
}

int64_t Length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      Budget::SpendBytes(value.text().size());
      return static_cast<int64_t>(CountCodePoints(value.text()));
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<int64_t>(value.items().size());
    case Kind::kDict:
      return static_cast<int64_t>(value.dict().size());
    case Kind::kObject:
      if (const auto length = value.host().Length()) return *length;
      break;
    default:
      break;
  }
  RaiseTypeError("object of type '" + TypeName(value) + "' has no len()");
}

bool Callable(const Value& value) {
  // Undefined has a __call__, which fails.
  return value.is_undefined() || (value.kind() == Kind::kObject && value.host().Callable());
}

int64_t ToIndex(const Value& value) {
  if (value.is_undefined()) {
    RaiseTypeError("'Undefined' object cannot be interpreted as an integer");
  }
  if (value.kind() == Kind::kBigInt) {
    return value.big().negative() ? std::numeric_limits<int64_t>::min()
                                  : std::numeric_limits<int64_t>::max();
  }
  if (!value.is_integer()) {
    RaiseTypeError("'" + TypeName(value) + "' object cannot be interpreted as an integer");
  }
  return value.small_int();
}

}  // namespace moewe::text::jinja
