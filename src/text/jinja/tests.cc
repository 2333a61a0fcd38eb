#include "text/jinja/tests.h"

#include <unordered_map>

#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/ops.h"
#include "text/jinja/printer.h"
#include "text/jinja/unicode.h"

namespace moewe::text::jinja {
namespace {

// A test without arguments.
template <bool (*kPredicate)(const Value&)>
bool Plain(const Value& subject, Args& args) {
  const Arguments given("test", args, {}, 0);
  return kPredicate(subject);
}

template <CompareOp kOp>
bool Comparison(const Value& subject, Args& args) {
  const Arguments given("test", args, {"/other"}, 1);
  return Compare(kOp, subject, given[0]);
}

bool IsDefined(const Value& v) { return !v.is_undefined(); }
bool IsUndefined(const Value& v) { return v.is_undefined(); }
bool IsNone(const Value& v) { return v.is_none(); }
bool IsBoolean(const Value& v) { return v.is_bool(); }
bool IsTrue(const Value& v) { return v.is_bool() && v.boolean(); }
bool IsFalse(const Value& v) { return v.is_bool() && !v.boolean(); }
bool IsInteger(const Value& v) { return v.is_integer() && !v.is_bool(); }
bool IsFloat(const Value& v) { return v.is_float(); }
bool IsNumber(const Value& v) { return v.is_number(); }
bool IsString(const Value& v) { return v.is_string(); }
bool IsMapping(const Value& v) { return v.is_dict(); }
bool IsIterable(const Value& v) { return Iterable(v); }
bool IsCallable(const Value& v) { return Callable(v); }
bool IsEscaped(const Value& v) { return v.is_string() && v.str().safe; }

bool IsSequence(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
      return true;
    case Kind::kObject:
      return v.host().Length().has_value() && v.host().HasItems();
    default:
      return false;
  }
}

bool RemainderIs(const Value& v, int64_t divisor, int64_t wanted) {
  return Equals(Binary(BinaryOp::kModulo, v, Value::Int(divisor)), Value::Int(wanted));
}
bool IsOdd(const Value& v) { return RemainderIs(v, 2, 1); }
bool IsEven(const Value& v) { return RemainderIs(v, 2, 0); }

bool DivisibleBy(const Value& subject, Args& args) {
  const Arguments given("divisibleby", args, {"num"}, 1);
  return Equals(Binary(BinaryOp::kModulo, subject, given[0]), Value::Int(0));
}

// All cased characters have one case, and there is one.
bool HasCase(const Value& value, bool upper) {
  const std::string text = ToStr(value).text;
  bool found = false;
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = NextCodePoint(text, pos);
    if (IsTitle(c) || (upper ? IsLower(c) : IsUpper(c))) return false;
    found = found || (upper ? IsUpper(c) : IsLower(c));
  }
  return found;
}
bool IsLowerText(const Value& v) { return HasCase(v, false); }
bool IsUpperText(const Value& v) { return HasCase(v, true); }

bool IsIn(const Value& subject, Args& args) {
  const Arguments given("in", args, {"seq"}, 1);
  return Contains(given[0], subject);
}

// `is` of Python, as far as values can tell: small integers and strings are taken as one object
// each.
bool SameAs(const Value& subject, Args& args) {
  const Arguments given("sameas", args, {"other"}, 1);
  const Value& other = given[0];
  if (subject.kind() != other.kind()) return false;
  switch (subject.kind()) {
    case Kind::kUndefined:
      return subject.identity() == other.identity();
    case Kind::kNone:
      return true;
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
    case Kind::kString:
      return Equals(subject, other);
    default:
      return subject.identity() == other.identity();
  }
}

// Looked up in a dict, so a name that can't be hashed is an error.
bool IsFilter(const Value& v) {
  Hash(v);
  return v.is_string() && FindFilter(v.text()) != nullptr;
}
bool IsTest(const Value& v) {
  Hash(v);
  return v.is_string() && FindTest(v.text()) != nullptr;
}

}  // namespace

TestFunction FindTest(std::string_view name) {
  static const std::unordered_map<std::string_view, TestFunction> kTests = {
      {"defined", Plain<IsDefined>},
      {"undefined", Plain<IsUndefined>},
      {"none", Plain<IsNone>},
      {"boolean", Plain<IsBoolean>},
      {"true", Plain<IsTrue>},
      {"false", Plain<IsFalse>},
      {"integer", Plain<IsInteger>},
      {"float", Plain<IsFloat>},
      {"number", Plain<IsNumber>},
      {"string", Plain<IsString>},
      {"mapping", Plain<IsMapping>},
      {"sequence", Plain<IsSequence>},
      {"iterable", Plain<IsIterable>},
      {"callable", Plain<IsCallable>},
      {"escaped", Plain<IsEscaped>},
      {"odd", Plain<IsOdd>},
      {"even", Plain<IsEven>},
      {"divisibleby", DivisibleBy},
      {"lower", Plain<IsLowerText>},
      {"upper", Plain<IsUpperText>},
      {"in", IsIn},
      {"sameas", SameAs},
      {"filter", Plain<IsFilter>},
      {"test", Plain<IsTest>},
      {"==", Comparison<CompareOp::kEqual>},
      {"eq", Comparison<CompareOp::kEqual>},
      {"equalto", Comparison<CompareOp::kEqual>},
      {"!=", Comparison<CompareOp::kNotEqual>},
      {"ne", Comparison<CompareOp::kNotEqual>},
      {">", Comparison<CompareOp::kGreater>},
      {"gt", Comparison<CompareOp::kGreater>},
      {"greaterthan", Comparison<CompareOp::kGreater>},
      {">=", Comparison<CompareOp::kGreaterEqual>},
      {"ge", Comparison<CompareOp::kGreaterEqual>},
      {"<", Comparison<CompareOp::kLess>},
      {"lt", Comparison<CompareOp::kLess>},
      {"lessthan", Comparison<CompareOp::kLess>},
      {"<=", Comparison<CompareOp::kLessEqual>},
      {"le", Comparison<CompareOp::kLessEqual>},
  };
  const auto found = kTests.find(name);
  return found == kTests.end() ? nullptr : found->second;
}

}  // namespace moewe::text::jinja
