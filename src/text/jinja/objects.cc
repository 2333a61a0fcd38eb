#include "text/jinja/objects.h"

#include <algorithm>

#include "text/jinja/budget.h"
#include "text/jinja/ops.h"
#include "text/jinja/printer.h"

namespace moewe::text::jinja {

Range::Range(int64_t start, int64_t stop, int64_t step) : start_(start), stop_(stop), step_(step) {
  // Unsigned, so that the widest ranges do not overflow.
  length_ = 0;
  if (step > 0 && start < stop) {
    length_ =
        static_cast<int64_t>((static_cast<uint64_t>(stop) - static_cast<uint64_t>(start) - 1) /
                             static_cast<uint64_t>(step)) +
        1;
  } else if (step < 0 && start > stop) {
    length_ =
        static_cast<int64_t>((static_cast<uint64_t>(start) - static_cast<uint64_t>(stop) - 1) /
                             (uint64_t{0} - static_cast<uint64_t>(step))) +
        1;
  }
}

Str Range::Repr() const {
  std::string text = "range(" + std::to_string(start_) + ", " + std::to_string(stop_);
  if (step_ != 1) text += ", " + std::to_string(step_);
  return Str(text + ")");
}

std::optional<Value> Range::Attribute(std::string_view name) const {
  if (name == "start") return Value::Int(start_);
  if (name == "stop") return Value::Int(stop_);
  if (name == "step") return Value::Int(step_);
  if (name == "count" || name == "index") {
    const bool count = name == "count";
    return MakeFunction(std::string(name), [start = start_, step = step_, length = length_, count](
                                               Interpreter&, Args& args) {
      if (args.positional.size() != 1) RaiseTypeError("expected exactly one argument");
      const Value& wanted = args.positional[0];
      for (int64_t i = 0; i < length; ++i) {
        Budget::Spend(1);
        if (jinja::Equals(Value::Int(start + i * step), wanted)) return Value::Int(count ? 1 : i);
      }
      if (!count) RaiseValueError(jinja::Repr(wanted).text + " is not in range");
      return Value::Int(0);
    });
  }
  return std::nullopt;
}

std::optional<Value> Range::Item(const Value& key) const {
  if (!key.is_integer()) {
    RaiseTypeError("range indices must be integers or slices, not " + jinja::TypeName(key));
  }
  int64_t index = ToIndex(key);
  if (index < 0) index += length_;
  if (index < 0 || index >= length_) return std::nullopt;
  return Value::Int(At(index));
}

std::vector<Value> Range::Iterate() {
  Budget::Spend(static_cast<uint64_t>(length_) / 4);
  std::vector<Value> values;
  values.reserve(static_cast<size_t>(length_));
  for (int64_t i = 0; i < length_; ++i) values.push_back(Value::Int(At(i)));
  return values;
}

std::optional<bool> Range::Equals(const Value& other) const {
  const Range* range = other.As<Range>();
  if (range == nullptr || range->length_ != length_) return false;
  if (length_ == 0) return true;
  return range->start_ == start_ && (length_ == 1 || range->step_ == step_);
}

std::optional<bool> Range::Contains(const Value& item) const {
  if (!item.is_integer() || item.kind() == Kind::kBigInt) return std::nullopt;
  const int64_t value = item.small_int();
  if (length_ == 0 ||
      (step_ > 0 ? value < start_ || value >= stop_ : value > start_ || value <= stop_)) {
    return false;
  }
  return (value - start_) % step_ == 0;
}

Iterator::Iterator(std::vector<Value> items, std::string type)
    : HostObject(64 + items.capacity() * sizeof(Value)),
      items_(std::move(items)),
      type_(std::move(type)) {}

Iterator::~Iterator() {
  // The list's destructor takes nested contents apart without recursion.
  try {
    Value::List(std::move(items_));
  } catch (const Exception&) {
  }
}

std::vector<Value> Iterator::Iterate() {
  std::vector<Value> rest;
  if (position_ == 0) {
    rest = std::move(items_);
  } else {
    rest.assign(items_.begin() + static_cast<std::ptrdiff_t>(position_), items_.end());
  }
  items_.clear();
  position_ = 0;
  return rest;
}

std::optional<Value> Iterator::Next() {
  if (position_ >= items_.size()) return std::nullopt;
  return items_[position_++];
}

std::string DictView::TypeName() const {
  return part_ == Part::kKeys ? "dict_keys" : part_ == Part::kValues ? "dict_values" : "dict_items";
}

Str DictView::Repr() const {
  Str out(TypeName() + "([");
  bool first = true;
  const DepthGuard depth;
  for (const Dict::Entry& entry : dict_.dict().entries()) {
    if (!first) out.Append(", ");
    first = false;
    if (part_ == Part::kItems) out.Append("(");
    if (part_ != Part::kValues) out.Append(jinja::Repr(entry.key));
    if (part_ == Part::kItems) out.Append(", ");
    if (part_ != Part::kKeys) out.Append(jinja::Repr(entry.value));
    if (part_ == Part::kItems) out.Append(")");
  }
  out.Append("])");
  return out;
}

std::vector<Value> DictView::Iterate() {
  std::vector<Value> out;
  Budget::Spend(dict_.dict().size() / 4);
  for (const Dict::Entry& entry : dict_.dict().entries()) {
    switch (part_) {
      case Part::kKeys:
        out.push_back(entry.key);
        break;
      case Part::kValues:
        out.push_back(entry.value);
        break;
      case Part::kItems:
        out.push_back(Value::Tuple({entry.key, entry.value}));
        break;
    }
  }
  return out;
}

std::optional<bool> DictView::Equals(const Value& other) const {
  const DictView* view = other.As<DictView>();
  if (view == nullptr || part_ == Part::kValues || view->part_ != part_) return std::nullopt;
  if (part_ == Part::kItems) return jinja::Equals(dict_, view->dict_);
  if (dict_.dict().size() != view->dict_.dict().size()) return false;
  for (const Dict::Entry& entry : dict_.dict().entries()) {
    if (view->dict_.dict().Find(entry.key) == nullptr) return false;
  }
  return true;
}

std::optional<bool> DictView::Contains(const Value& item) const {
  if (part_ == Part::kKeys) return dict_.dict().Find(item) != nullptr;
  if (part_ == Part::kItems) {
    if (!item.is_tuple() || item.items().size() != 2) return false;
    const Value* value = dict_.dict().Find(item.items()[0]);
    return value != nullptr && jinja::Equals(*value, item.items()[1]);
  }
  return std::nullopt;
}

Str Namespace::Repr() const {
  const DepthGuard depth;
  Str out("<Namespace ");
  out.Append(jinja::Repr(Value::Map(values_)));
  out.Append(">");
  return out;
}

std::optional<Value> Namespace::Attribute(std::string_view name) const {
  const Value* value = values_.Find(name);
  return value == nullptr ? std::nullopt : std::optional<Value>(*value);
}

void Namespace::Set(std::string_view name, Value value) {
  values_.Set(Value::String(name), std::move(value));
}

Value Cycler::Next() {
  Value value = items_[position_];
  position_ = (position_ + 1) % items_.size();
  return value;
}

std::optional<Value> Cycler::Attribute(std::string_view name) const {
  if (name == "current") return items_[position_];
  if (name == "items") return Value::Tuple(items_);
  if (name == "pos") return Value::Int(static_cast<int64_t>(position_));
  if (name == "next" || name == "reset") {
    auto self = std::const_pointer_cast<Cycler>(shared_from_this());
    return MakeFunction(std::string(name), [self, reset = name == "reset"](Interpreter&, Args&) {
      if (!reset) return self->Next();
      self->Reset();
      return Value();
    });
  }
  return std::nullopt;
}

Value Joiner::Call(Interpreter&, Args& args) {
  if (!args.positional.empty() || !args.named.empty()) {
    RaiseTypeError("Joiner.__call__() takes 1 positional argument");
  }
  if (used_) return separator_;
  used_ = true;
  return Value::String("");
}

Value MakeFunction(std::string name, Function::Body body) {
  return Value::Host(std::make_shared<Function>(std::move(name), std::move(body)));
}

}  // namespace moewe::text::jinja
