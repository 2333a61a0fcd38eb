// Filters on sequences and mappings.
#include <algorithm>

#include "text/jinja/arguments.h"
#include "text/jinja/attributes.h"
#include "text/jinja/budget.h"
#include "text/jinja/filter_tools.h"
#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/objects.h"
#include "text/jinja/ops.h"
#include "text/jinja/printer.h"
#include "text/jinja/unicode.h"

namespace moewe::text::jinja {
namespace {

Value UndefinedHint(const char* hint) {
  UndefinedInfo info;
  info.hint = hint;
  return Value::Undefined(std::move(info));
}

std::vector<Value> Keys(const std::vector<Value>& items, const AttributeGetter& getter,
                        bool case_sensitive) {
  std::vector<Value> keys;
  keys.reserve(items.size());
  for (const Value& item : items) {
    Value key = getter.Get(item);
    keys.push_back(case_sensitive ? std::move(key) : IgnoreCase(key));
  }
  return keys;
}

Value Batch(Interpreter&, const Value& input, Args& args) {
  const Arguments given("batch", args, {"linecount", "fill_with"}, 1);
  const Value& size_value = given[0];
  std::vector<Value> batches;
  std::vector<Value> batch;
  for (Value& item : Iterate(input)) {
    if (Equals(Value::Int(static_cast<int64_t>(batch.size())), size_value)) {
      batches.push_back(Value::List(std::move(batch)));
      batch.clear();
    }
    batch.push_back(std::move(item));
  }
  if (!batch.empty()) {
    if (given.has(1) && !given[1].is_none()) {
      const int64_t size = ToIndex(size_value);
      if (size > 100000) Raise("MemoryError", "a batch is too long");
      while (static_cast<int64_t>(batch.size()) < size) batch.push_back(given[1]);
    }
    batches.push_back(Value::List(std::move(batch)));
  }
  return Generator(std::move(batches));
}

Value Slice(Interpreter&, const Value& input, Args& args) {
  const Arguments given("slice", args, {"slices", "fill_with"}, 1);
  const std::vector<Value> items = Iterate(input);
  const int64_t slices = ToIndex(given[0]);
  if (slices == 0) Raise("ZeroDivisionError", "integer division or modulo by zero");
  if (slices > 100000) Raise("MemoryError", "too many slices");
  std::vector<Value> out;
  if (slices > 0) {
    const auto length = static_cast<int64_t>(items.size());
    const int64_t each = length / slices;
    const int64_t extra = length % slices;
    auto position = items.begin();
    for (int64_t i = 0; i < slices; ++i) {
      const auto end = position + each + (i < extra ? 1 : 0);
      std::vector<Value> part(position, end);
      position = end;
      if (given.has(1) && !given[1].is_none() && i >= extra) part.push_back(given[1]);
      out.push_back(Value::List(std::move(part)));
    }
  }
  return Generator(std::move(out));
}

Value First(Interpreter&, const Value& input, Args& args) {
  const Arguments given("first", args, {}, 0);
  if (Iterator* iterator = input.As<Iterator>()) {
    if (auto next = iterator->Next()) return *std::move(next);
    return UndefinedHint("No first item, sequence was empty.");
  }
  if (input.is_string() && !input.text().empty()) {
    return CharacterAt(input.str(), 0);
  }
  const std::vector<Value> items = Iterate(input);
  return items.empty() ? UndefinedHint("No first item, sequence was empty.") : items.front();
}

// What reversed() takes.
void RequireReversible(const Value& value) {
  if (!Iterable(value) || value.As<Iterator>() != nullptr) {
    RaiseTypeError("'" + TypeName(value) + "' object is not reversible");
  }
}

Value Last(Interpreter&, const Value& input, Args& args) {
  const Arguments given("last", args, {}, 0);
  RequireReversible(input);
  const std::vector<Value> items = Iterate(input);
  return items.empty() ? UndefinedHint("No last item, sequence was empty.") : items.back();
}

Value RandomItem(Interpreter& interpreter, const Value& input, Args& args) {
  const Arguments given("random", args, {}, 0);
  const int64_t length = Length(input);
  if (length == 0) return UndefinedHint("No random item, sequence was empty.");
  return GetItem(input, Value::Int(static_cast<int64_t>(interpreter.Random()) % length));
}

Value LengthOf(Interpreter&, const Value& input, Args& args) {
  const Arguments given("length", args, {}, 0);
  return Value::Int(Length(input));
}

Value ToList(Interpreter&, const Value& input, Args& args) {
  const Arguments given("list", args, {}, 0);
  return Value::List(Iterate(input));
}

Value Reverse(Interpreter&, const Value& input, Args& args) {
  const Arguments given("reverse", args, {}, 0);
  if (input.is_string()) return GetSlice(input, Value(), Value(), Value::Int(-1));
  if (!Iterable(input)) RaiseFilterArgument("argument must be iterable");
  std::vector<Value> items = Iterate(input);
  std::reverse(items.begin(), items.end());
  if (input.As<Iterator>() != nullptr) return Value::List(std::move(items));
  return Value::Host(
      std::make_shared<Iterator>(std::move(items), TypeName(input) + "_reverseiterator"));
}

Value Join(Interpreter& interpreter, const Value& input, Args& args) {
  const Arguments given("join", args, {"d", "attribute"}, 0);
  std::vector<Value> items = Iterate(input);
  if (given.has(1) && !given[1].is_none()) {
    const AttributeGetter getter(given[1]);
    for (Value& item : items) item = getter.Get(item);
  }
  Value separator = given.Or(0, Value::String(""));
  Str out;
  const bool escaping = interpreter.autoescape();
  if (escaping) {
    const auto safe = [](const Value& v) { return v.is_string() && v.str().safe; };
    out.safe = safe(separator) || std::any_of(items.begin(), items.end(), safe);
  }
  const auto append = [&](const Value& value) {
    if (out.safe) {
      out.Append(Escaped(value));
    } else {
      AppendStr(out, value);
    }
  };
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) append(separator);
    append(items[i]);
  }
  return Value::String(std::move(out));
}

Value Items(Interpreter&, const Value& input, Args& args) {
  const Arguments given("items", args, {}, 0);
  if (input.is_undefined()) return Generator({});
  if (!input.is_dict()) RaiseTypeError("Can only get item pairs from a mapping.");
  return Generator(DictView(input, DictView::Part::kItems).Iterate());
}

Value Dictsort(Interpreter&, const Value& input, Args& args) {
  const Arguments given("dictsort", args, {"case_sensitive", "by", "reverse"}, 0);
  const std::string by = given.has(1) && given[1].is_string() ? given[1].text()
                         : given.has(1)                       ? ""
                                                              : "key";
  if (by != "key" && by != "value")
    RaiseFilterArgument("You can only sort by either \"key\" or \"value\"");
  if (input.is_undefined()) input.undefined().Fail();
  if (!input.is_dict()) {
    Raise("AttributeError", "'" + TypeName(input) + "' object has no attribute 'items'");
  }
  std::vector<Value> items = DictView(input, DictView::Part::kItems).Iterate();
  const AttributeGetter getter(Value::Int(by == "key" ? 0 : 1));
  SortByKey(items, Keys(items, getter, given.Flag(0, false)), given.Flag(2, false));
  return Value::List(std::move(items));
}

Value Sort(Interpreter&, const Value& input, Args& args) {
  const Arguments given("sort", args, {"reverse", "case_sensitive", "attribute"}, 0);
  std::vector<Value> items = Iterate(input);
  const bool case_sensitive = given.Flag(1, false);
  const Value attribute = given.Or(2, Value());
  std::vector<Value> keys;
  if (!attribute.is_none()) {
    // One or several attributes, compared as lists: what is equal (undefined, too) needs no order.
    std::vector<std::vector<Value>> parts;
    const std::string names = attribute.is_string() ? attribute.text() : "";
    for (size_t begin = 0; begin <= names.size();) {
      const size_t end = std::min(names.find(',', begin), names.size());
      const AttributeGetter getter(
          attribute.is_string() ? Value::String(names.substr(begin, end - begin)) : attribute);
      parts.push_back(Keys(items, getter, case_sensitive));
      begin = end + 1;
    }
    for (size_t i = 0; i < items.size(); ++i) {
      std::vector<Value> key;
      for (const auto& part : parts) key.push_back(part[i]);
      keys.push_back(Value::List(std::move(key)));
    }
  } else {
    keys = Keys(items, AttributeGetter(Value()), case_sensitive);
  }
  SortByKey(items, keys, given.Integer(0, 0) != 0);
  return Value::List(std::move(items));
}

Value Unique(Interpreter&, const Value& input, Args& args) {
  const Arguments given("unique", args, {"case_sensitive", "attribute"}, 0);
  const std::vector<Value> items = Iterate(input);
  const std::vector<Value> keys =
      Keys(items, AttributeGetter(given.Or(1, Value())), given.Flag(0, false));
  Dict seen;
  std::vector<Value> out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (seen.Find(keys[i]) != nullptr) continue;
    seen.Set(keys[i], Value());
    out.push_back(items[i]);
  }
  return Generator(std::move(out));
}

Value Extreme(const char* name, bool largest, const Value& input, Args& args) {
  const Arguments given(name, args, {"case_sensitive", "attribute"}, 0);
  const std::vector<Value> items = Iterate(input);
  if (items.empty()) return UndefinedHint("No aggregated item, sequence was empty.");
  const std::vector<Value> keys =
      Keys(items, AttributeGetter(given.Or(1, Value())), given.Flag(0, false));
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    if (largest ? Less(keys[best], keys[i]) : Less(keys[i], keys[best])) best = i;
  }
  return items[best];
}
Value Min(Interpreter&, const Value& input, Args& args) {
  return Extreme("min", false, input, args);
}
Value Max(Interpreter&, const Value& input, Args& args) {
  return Extreme("max", true, input, args);
}

Value Sum(Interpreter&, const Value& input, Args& args) {
  const Arguments given("sum", args, {"attribute", "start"}, 0);
  Value total = given.Or(1, Value::Int(0));
  if (total.is_string()) RaiseTypeError("sum() can't sum strings [use ''.join(seq) instead]");
  const AttributeGetter getter(given.Or(0, Value()));
  for (const Value& item : Iterate(input)) total = Binary(BinaryOp::kAdd, total, getter.Get(item));
  return total;
}

Value GroupBy(Interpreter&, const Value& input, Args& args) {
  const Arguments given("groupby", args, {"attribute", "default", "case_sensitive"}, 1);
  const Value* fallback = given.has(1) && !given[1].is_none() ? &given[1] : nullptr;
  const AttributeGetter getter(given[0], fallback);
  const bool case_sensitive = given.Flag(2, false);
  std::vector<Value> items = Iterate(input);
  SortByKey(items, Keys(items, getter, case_sensitive), false);
  const std::vector<Value> keys = Keys(items, getter, case_sensitive);
  std::vector<Value> groups;
  for (size_t begin = 0; begin < items.size();) {
    size_t end = begin + 1;
    while (end < items.size() && Equals(keys[begin], keys[end])) ++end;
    std::vector<Value> members(items.begin() + static_cast<std::ptrdiff_t>(begin),
                               items.begin() + static_cast<std::ptrdiff_t>(end));
    groups.push_back(Value::Group(getter.Get(items[begin]), Value::List(std::move(members))));
    begin = end;
  }
  return Value::List(std::move(groups));
}

constexpr FilterEntry kSequenceFilters[] = {
    {"batch", Batch},       {"slice", Slice},     {"first", First},    {"last", Last},
    {"random", RandomItem}, {"length", LengthOf}, {"count", LengthOf}, {"list", ToList},
    {"reverse", Reverse},   {"join", Join},       {"items", Items},    {"dictsort", Dictsort},
    {"sort", Sort},         {"unique", Unique},   {"min", Min},        {"max", Max},
    {"sum", Sum},           {"groupby", GroupBy},
};

}  // namespace

std::span<const FilterEntry> SequenceFilters() { return kSequenceFilters; }

}  // namespace moewe::text::jinja
