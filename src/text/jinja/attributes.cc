#include "text/jinja/attributes.h"

#include <algorithm>

#include "text/jinja/budget.h"
#include "text/jinja/objects.h"
#include "text/jinja/ops.h"
#include "text/jinja/printer.h"
#include "text/jinja/unicode.h"

namespace moewe::text::jinja {
namespace {

Value Unsafe(const Value& object, std::string_view name) {
  UndefinedInfo info;
  info.name = name;
  info.hint = "access to attribute '" + std::string(name) + "' of '" + TypeName(object) +
              "' object is unsafe.";
  info.error = "SecurityError";
  return Value::Undefined(std::move(info));
}

Value Missing(const Value& object, std::string_view name) {
  UndefinedInfo info;
  info.name = name;
  info.owner = OwnerName(object);
  return Value::Undefined(std::move(info));
}

// The methods that change their object.
bool Mutates(Kind kind, std::string_view name) {
  static constexpr std::string_view kList[] = {"append", "clear",  "extend",  "insert",
                                               "pop",    "remove", "reverse", "sort"};
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  if (kind == Kind::kList)
    return std::find(std::begin(kList), std::end(kList), name) != std::end(kList);
  if (kind == Kind::kDict)
    return std::find(std::begin(kDict), std::end(kDict), name) != std::end(kDict);
  return false;
}

// Python's own attributes of every object are written like this; none of them is safe.
bool IsDunder(std::string_view name) {
  return name.size() > 4 && name.starts_with("__") && name.ends_with("__");
}

std::optional<Value> NumberProperty(const Value& number, std::string_view name) {
  if (name == "real") return Positive(number);
  if (name == "imag") return number.is_float() ? Value::Float(0) : Value::Int(0);
  if (number.is_float()) return std::nullopt;
  if (name == "numerator") return Positive(number);
  if (name == "denominator") return Value::Int(1);
  return std::nullopt;
}

MethodFunction FindMethod(const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::kString:
      return FindStringMethod(name);
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
      return FindContainerMethod(object.kind(), name);
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kBigInt:
    case Kind::kFloat:
      return FindNumberMethod(object.kind(), name);
    default:
      return nullptr;
  }
}

struct Bounds {
  int64_t start, stop, step;
};

// The indices that a slice of `length` things means; like Python's slice.indices.
Bounds ResolveSlice(int64_t length, const Value& start, const Value& stop, const Value& step) {
  const auto check = [](const Value& part) {
    if (!part.is_none() && !part.is_integer()) {
      RaiseTypeError("slice indices must be integers or None or have an __index__ method");
    }
  };
  check(step);
  check(start);
  check(stop);
  Bounds b{0, 0, step.is_none() ? 1 : ToIndex(step)};
  if (b.step == 0) RaiseValueError("slice step cannot be zero");
  b.step = std::clamp<int64_t>(b.step, -(int64_t{1} << 62), int64_t{1} << 62);
  const int64_t lowest = b.step < 0 ? -1 : 0;
  const int64_t highest = b.step < 0 ? length - 1 : length;
  const auto resolve = [&](const Value& part, int64_t fallback) {
    if (part.is_none()) return fallback;
    const int64_t index = ToIndex(part);
    return index < 0 ? std::max(index < -length ? int64_t{-1} : index + length, lowest)
                     : std::min(index, highest);
  };
  b.start = resolve(start, b.step < 0 ? highest : lowest);
  b.stop = resolve(stop, b.step < 0 ? lowest : highest);
  return b;
}

template <typename Visit>
void ForEachIndex(const Bounds& b, Visit visit) {
  if (b.step > 0) {
    for (int64_t i = b.start; i < b.stop; i += b.step) visit(i);
  } else {
    for (int64_t i = b.start; i > b.stop; i += b.step) visit(i);
  }
}

Value SliceString(const Str& str, const Value& start, const Value& stop, const Value& step) {
  Budget::SpendBytes(str.text.size());
  const bool ascii = IsAscii(str.text);
  const auto length = static_cast<int64_t>(ascii ? str.text.size() : CountCodePoints(str.text));
  const Bounds b = ResolveSlice(length, start, stop, step);
  Str out;
  if (b.step == 1) {
    if (b.start < b.stop) {
      const auto offset = [&](int64_t index) {
        return ascii ? static_cast<size_t>(index)
                     : OffsetOfCodePoint(str.text, static_cast<size_t>(index));
      };
      out = str.Substr(offset(b.start), offset(b.stop));
    }
  } else {
    std::vector<size_t> offsets;
    offsets.reserve(static_cast<size_t>(length) + 1);
    for (size_t pos = 0; pos < str.text.size();) {
      offsets.push_back(pos);
      NextCodePoint(str.text, pos);
    }
    offsets.push_back(str.text.size());
    Budget::Spend(offsets.size() / 8);
    ForEachIndex(b, [&](int64_t i) {
      out.Append(str, offsets[static_cast<size_t>(i)], offsets[static_cast<size_t>(i) + 1]);
    });
  }
  out.safe = str.safe;
  return Value::String(std::move(out));
}

std::optional<Value> IndexItems(const std::vector<Value>& items, const Value& key) {
  int64_t index = ToIndex(key);
  const auto length = static_cast<int64_t>(items.size());
  if (index < 0) index += length;
  if (index < 0 || index >= length) return std::nullopt;
  return items[static_cast<size_t>(index)];
}

std::optional<Value> IndexString(const Str& str, const Value& key) {
  int64_t index = ToIndex(key);
  if (index < 0 || !IsAscii(str.text)) {
    const auto length = static_cast<int64_t>(CountCodePoints(str.text));
    if (index < 0) index += length;
    if (index >= length) return std::nullopt;
  }
  if (index < 0 || index >= static_cast<int64_t>(str.text.size())) return std::nullopt;
  return CharacterAt(str, static_cast<size_t>(index));
}

// The item, or nothing where Python would raise a LookupError or TypeError.
std::optional<Value> FindItem(const Value& object, const Value& key) {
  switch (object.kind()) {
    case Kind::kDict: {
      if (!Hashable(key)) return std::nullopt;
      const Value* value = object.dict().Find(key);
      return value == nullptr ? std::nullopt : std::optional<Value>(*value);
    }
    case Kind::kList:
    case Kind::kTuple:
      return key.is_integer() ? IndexItems(object.items(), key) : std::nullopt;
    case Kind::kString:
      return key.is_integer() ? IndexString(object.str(), key) : std::nullopt;
    case Kind::kObject:
      return object.host().HasItems() && key.is_integer() ? object.host().Item(key) : std::nullopt;
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<Value> FindAttribute(const Value& object, std::string_view name) {
  if (IsDunder(name)) return Unsafe(object, name);
  if (object.kind() == Kind::kObject) return object.host().Attribute(name);
  if (const MethodFunction method = FindMethod(object, name)) {
    return MakeFunction(std::string(name),
                        [method, self = object](Interpreter& interpreter, Args& args) {
                          return method(interpreter, self, args);
                        });
  }
  if (Mutates(object.kind(), name)) return Unsafe(object, name);
  if (object.is_number()) return NumberProperty(object, name);
  if (object.is_group()) {
    if (name == "grouper") return object.items()[0];
    if (name == "list") return object.items()[1];
  }
  return std::nullopt;
}

Value GetAttribute(const Value& object, std::string_view name) {
  if (object.is_undefined()) object.undefined().Fail();
  if (auto attribute = FindAttribute(object, name)) return *std::move(attribute);
  if (object.is_dict()) {
    if (const Value* value = object.dict().Find(name)) return *value;
  }
  return Missing(object, name);
}

Value GetItem(const Value& object, const Value& key) {
  if (object.is_undefined()) object.undefined().Fail();
  if (auto item = FindItem(object, key)) return *std::move(item);
  if (key.is_string()) {
    if (auto attribute = FindAttribute(object, key.text())) return *std::move(attribute);
    return Missing(object, key.text());
  }
  UndefinedInfo info;
  info.element = true;
  info.owner = OwnerName(object);
  info.name = Repr(key).text;
  return Value::Undefined(std::move(info));
}

Value GetSlice(const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is_undefined()) object.undefined().Fail();
  if (object.is_string()) return SliceString(object.str(), start, stop, step);
  if (object.is_list() || object.is_tuple()) {
    const auto& items = object.items();
    std::vector<Value> out;
    ForEachIndex(ResolveSlice(static_cast<int64_t>(items.size()), start, stop, step),
                 [&](int64_t i) { out.push_back(items[static_cast<size_t>(i)]); });
    return object.is_list() ? Value::List(std::move(out)) : Value::Tuple(std::move(out));
  }
  if (const Range* range = object.As<Range>()) {
    const Bounds b = ResolveSlice(range->length(), start, stop, step);
    return Value::Host(
        std::make_shared<Range>(range->At(b.start), range->At(b.stop), range->step() * b.step));
  }
  if (object.is_dict()) RaiseTypeError("unhashable type: 'slice'");
  RaiseTypeError("'" + TypeName(object) + "' object is not subscriptable");
}

}  // namespace moewe::text::jinja
