// The methods of lists, tuples, dicts and numbers that change nothing.
#include <cmath>

#include "text/jinja/arguments.h"
#include "text/jinja/attributes.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/objects.h"
#include "text/jinja/ops.h"
#include "text/jinja/printer.h"

namespace moewe::text::jinja {
namespace {

Value CountItems(Interpreter&, const Value& self, Args& args) {
  const Arguments given("count", args, {"/value"}, 1);
  int64_t count = 0;
  for (const Value& item : self.items()) count += Equals(item, given[0]) ? 1 : 0;
  return Value::Int(count);
}

Value IndexOf(Interpreter&, const Value& self, Args& args) {
  const Arguments given("index", args, {"/value", "/start", "/stop"}, 1);
  const auto length = static_cast<int64_t>(self.items().size());
  const auto clamp = [&](int64_t i) {
    return std::clamp<int64_t>(i < 0 ? std::max(i, -length) + length : i, 0, length);
  };
  const int64_t stop = clamp(given.Integer(2, length));
  for (int64_t i = clamp(given.Integer(1, 0)); i < stop; ++i) {
    if (Equals(self.items()[static_cast<size_t>(i)], given[0])) return Value::Int(i);
  }
  RaiseValueError(self.is_tuple() ? "tuple.index(x): x not in tuple"
                                  : Repr(given[0]).text + " is not in list");
}

Value Copy(Interpreter&, const Value& self, Args& args) {
  const Arguments given("copy", args, {}, 0);
  if (self.is_dict()) return Value::Map(self.dict());
  return Value::List(self.items());
}

template <DictView::Part kPart>
Value View(Interpreter&, const Value& self, Args& args) {
  const Arguments given("items", args, {}, 0);
  return Value::Host(std::make_shared<DictView>(self, kPart));
}

Value Get(Interpreter&, const Value& self, Args& args) {
  const Arguments given("get", args, {"/key", "/default"}, 1);
  const Value* value = self.dict().Find(given[0]);
  return value != nullptr ? *value : given.Or(1, Value());
}

Value FromKeys(Interpreter&, const Value&, Args& args) {
  const Arguments given("fromkeys", args, {"/iterable", "/value"}, 1);
  Dict dict;
  for (const Value& key : Iterate(given[0])) dict.Set(key, given.Or(1, Value()));
  return Value::Map(std::move(dict));
}

Value BitLength(Interpreter&, const Value& self, Args& args) {
  const Arguments given("number", args, {}, 0);
  return Value::Int(static_cast<int64_t>(self.ToBig().bit_length()));
}
Value BitCount(Interpreter&, const Value& self, Args& args) {
  const Arguments given("number", args, {}, 0);
  const BigInt value = self.ToBig();
  int64_t count = 0;
  for (const char digit : value.ToString(2)) count += digit == '1' ? 1 : 0;
  return Value::Int(count);
}
Value IsIntegral(Interpreter&, const Value& self, Args& args) {
  const Arguments given("number", args, {}, 0);
  return Value::Bool(self.is_integer() ||
                     (std::isfinite(self.real()) && std::trunc(self.real()) == self.real()));
}
Value Itself(Interpreter&, const Value& self, Args& args) {
  const Arguments given("number", args, {}, 0);
  return Positive(self);
}

}  // namespace

MethodFunction FindContainerMethod(Kind kind, std::string_view name) {
  if (kind == Kind::kDict) {
    if (name == "items") return View<DictView::Part::kItems>;
    if (name == "keys") return View<DictView::Part::kKeys>;
    if (name == "values") return View<DictView::Part::kValues>;
    if (name == "get") return Get;
    if (name == "copy") return Copy;
    if (name == "fromkeys") return FromKeys;
    return nullptr;
  }
  if (name == "count") return CountItems;
  if (name == "index") return IndexOf;
  if (name == "copy" && kind == Kind::kList) return Copy;
  return nullptr;
}

MethodFunction FindNumberMethod(Kind kind, std::string_view name) {
  if (name == "conjugate") return Itself;
  if (kind == Kind::kFloat) return name == "is_integer" ? IsIntegral : nullptr;
  if (name == "bit_length") return BitLength;
  if (name == "bit_count") return BitCount;
  return nullptr;
}

}  // namespace moewe::text::jinja
