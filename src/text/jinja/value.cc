#include "text/jinja/value.h"

#include <cmath>
#include <functional>

#include "text/jinja/budget.h"
#include "text/jinja/ops.h"

namespace moewe::text::jinja {
namespace {

struct StringObject final : Object {
  explicit StringObject(Str s)
      : Object(sizeof(StringObject) + s.text.capacity() + s.spans.size() * sizeof(Span)),
        value(std::move(s)) {}
  Str value;
};

struct BigIntObject final : Object {
  explicit BigIntObject(BigInt b)
      : Object(sizeof(BigIntObject) + b.bit_length() / 8), value(std::move(b)) {}
  BigInt value;
};

struct UndefinedObject final : Object {
  explicit UndefinedObject(UndefinedInfo i) : Object(sizeof(UndefinedObject)), info(std::move(i)) {}
  UndefinedInfo info;
};

// Containers hand their contents to a list that the outermost destructor empties, so that a chain
// of a million nested lists does not recurse a million destructors deep.
class Graveyard {
 public:
  static void Bury(std::shared_ptr<Object> object) {
    if (object == nullptr || object.use_count() > 1) return;
    thread_local std::vector<std::shared_ptr<Object>> waiting;
    thread_local bool digging = false;
    waiting.push_back(std::move(object));
    if (digging) return;
    digging = true;
    while (!waiting.empty()) {
      const std::shared_ptr<Object> next = std::move(waiting.back());
      waiting.pop_back();
    }
    digging = false;
  }
};

struct ListObject final : Object {
  ListObject(std::vector<Value> v, bool g)
      : Object(sizeof(ListObject) + v.capacity() * sizeof(Value)), items(std::move(v)), group(g) {}
  ~ListObject() override {
    for (Value& item : items) {
      if (item.kind() >= Kind::kList) Graveyard::Bury(item.Detach());
    }
  }
  std::vector<Value> items;
  bool group;
};

struct DictObject final : Object {
  explicit DictObject(Dict d)
      : Object(sizeof(DictObject) + d.size() * (sizeof(Dict::Entry) + 32)), dict(std::move(d)) {}
  ~DictObject() override {
    for (Dict::Entry& entry : dict.mutable_entries()) {
      if (entry.key.kind() >= Kind::kList) Graveyard::Bury(entry.key.Detach());
      if (entry.value.kind() >= Kind::kList) Graveyard::Bury(entry.value.Detach());
    }
  }
  Dict dict;
};

size_t HashDouble(double value) {
  // Integral floats hash as the integers that they equal.
  if (std::isfinite(value) && value == std::trunc(value)) {
    if (std::fabs(value) < 9.2e18) return std::hash<int64_t>()(static_cast<int64_t>(value));
    return BigInt::FromDouble(value).Hash();
  }
  return std::hash<double>()(value);
}

}  // namespace

Object::Object(size_t bytes) {
  if (Budget::Acquire(bytes)) charged_ = bytes;
}
Object::~Object() {
  if (charged_ != 0) Budget::Release(charged_);
}

std::string UndefinedInfo::Message() const {
  if (!hint.empty()) return hint;
  if (owner.empty()) return "'" + name + "' is undefined";
  if (element) return owner + " has no element " + name;
  return "'" + owner + "' has no attribute '" + name + "'";
}
void UndefinedInfo::Fail() const { Raise(error, Message()); }

Value Value::Undefined(UndefinedInfo info) {
  Value v;
  v.kind_ = Kind::kUndefined;
  v.ref_ = std::make_shared<UndefinedObject>(std::move(info));
  return v;
}
Value Value::UndefinedVariable(std::string_view name) {
  UndefinedInfo info;
  info.name = name;
  return Undefined(std::move(info));
}
Value Value::Bool(bool value) {
  Value v;
  v.kind_ = Kind::kBool;
  v.integer_ = value ? 1 : 0;
  return v;
}
Value Value::Int(int64_t value) {
  Value v;
  v.kind_ = Kind::kInt;
  v.integer_ = value;
  return v;
}
Value Value::Int(const BigInt& value) {
  if (const auto small = value.ToInt64()) return Int(*small);
  Value v;
  v.kind_ = Kind::kBigInt;
  v.ref_ = std::make_shared<BigIntObject>(value);
  return v;
}
Value Value::Float(double value) {
  Value v;
  v.kind_ = Kind::kFloat;
  v.real_ = value;
  return v;
}
Value Value::String(Str value) {
  CheckStringSize(value.text.size());
  Budget::SpendBytes(value.text.size());
  Value v;
  v.kind_ = Kind::kString;
  v.ref_ = std::make_shared<StringObject>(std::move(value));
  return v;
}
Value Value::List(std::vector<Value> items) {
  Budget::Spend(1 + items.size() / 4);
  Value v;
  v.kind_ = Kind::kList;
  v.ref_ = std::make_shared<ListObject>(std::move(items), false);
  return v;
}
Value Value::Tuple(std::vector<Value> items) {
  Budget::Spend(1 + items.size() / 4);
  Value v;
  v.kind_ = Kind::kTuple;
  v.ref_ = std::make_shared<ListObject>(std::move(items), false);
  return v;
}
Value Value::Group(Value grouper, Value list) {
  Value v;
  v.kind_ = Kind::kTuple;
  std::vector<Value> items;
  items.push_back(std::move(grouper));
  items.push_back(std::move(list));
  v.ref_ = std::make_shared<ListObject>(std::move(items), true);
  return v;
}
Value Value::Map(Dict dict) {
  Budget::Spend(1 + dict.size() / 2);
  Value v;
  v.kind_ = Kind::kDict;
  v.ref_ = std::make_shared<DictObject>(std::move(dict));
  return v;
}
Value Value::Host(std::shared_ptr<HostObject> object) {
  Value v;
  v.kind_ = Kind::kObject;
  v.ref_ = std::move(object);
  return v;
}

const BigInt& Value::big() const { return static_cast<const BigIntObject&>(*ref_).value; }
const Str& Value::str() const { return static_cast<const StringObject&>(*ref_).value; }
const std::vector<Value>& Value::items() const {
  return static_cast<const ListObject&>(*ref_).items;
}
const Dict& Value::dict() const { return static_cast<const DictObject&>(*ref_).dict; }
const UndefinedInfo& Value::undefined() const {
  return static_cast<const UndefinedObject&>(*ref_).info;
}
HostObject& Value::host() const { return static_cast<HostObject&>(*ref_); }
bool Value::is_group() const {
  return kind_ == Kind::kTuple && static_cast<const ListObject&>(*ref_).group;
}

BigInt Value::ToBig() const { return kind_ == Kind::kBigInt ? big() : BigInt(integer_); }
double Value::ToDouble() const {
  if (kind_ == Kind::kFloat) return real_;
  return kind_ == Kind::kBigInt ? big().ToDouble() : static_cast<double>(integer_);
}

const Value* Dict::Find(const Value& key) const {
  const size_t hash = Hash(key);
  if (index_.empty()) {
    for (const Entry& entry : entries_) {
      if (Equals(entry.key, key)) return &entry.value;
    }
    return nullptr;
  }
  const auto [first, last] = index_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    if (Equals(entries_[it->second].key, key)) return &entries_[it->second].value;
  }
  return nullptr;
}

const Value* Dict::Find(std::string_view key) const {
  const auto matches = [&](const Value& candidate) {
    return candidate.is_string() && candidate.text() == key;
  };
  if (index_.empty()) {
    for (const Entry& entry : entries_) {
      if (matches(entry.key)) return &entry.value;
    }
    return nullptr;
  }
  const auto [first, last] = index_.equal_range(std::hash<std::string_view>()(key));
  for (auto it = first; it != last; ++it) {
    if (matches(entries_[it->second].key)) return &entries_[it->second].value;
  }
  return nullptr;
}

void Dict::Set(Value key, Value value) {
  if (const Value* present = Find(key)) {
    *const_cast<Value*>(present) = std::move(value);
    return;
  }
  entries_.push_back({std::move(key), std::move(value)});
  if (entries_.size() == kIndexFrom) {
    for (size_t i = 0; i < entries_.size(); ++i) index_.emplace(Hash(entries_[i].key), i);
  } else if (entries_.size() > kIndexFrom) {
    index_.emplace(Hash(entries_.back().key), entries_.size() - 1);
  }
}

Str HostObject::Repr() const { return Str("<" + TypeName() + " object>"); }
std::optional<Value> HostObject::Item(const Value&) const {
  RaiseTypeError("'" + TypeName() + "' object is not subscriptable");
}
std::vector<Value> HostObject::Iterate() {
  RaiseTypeError("'" + TypeName() + "' object is not iterable");
}
Value HostObject::Call(Interpreter&, Args&) {
  RaiseTypeError("'" + TypeName() + "' object is not callable");
}

std::string TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
    case Kind::kBigInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.str().safe ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return value.is_group() ? "_GroupTuple" : "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kObject:
      break;
  }
  return value.host().TypeName();
}

std::string OwnerName(const Value& value) {
  return value.is_none() ? "None" : TypeName(value) + " object";
}

bool Hashable(const Value& value) {
  switch (value.kind()) {
    case Kind::kList:
    case Kind::kDict:
      return false;
    case Kind::kTuple: {
      const DepthGuard depth;
      for (const Value& item : value.items()) {
        if (!Hashable(item)) return false;
      }
      return true;
    }
    default:
      return true;
  }
}

size_t Hash(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 7;
    case Kind::kNone:
      return 11;
    case Kind::kBool:
    case Kind::kInt:
      return std::hash<int64_t>()(value.small_int());
    case Kind::kBigInt:
      return value.big().Hash();
    case Kind::kFloat:
      return HashDouble(value.real());
    case Kind::kString:
      Budget::SpendBytes(value.text().size());
      return std::hash<std::string_view>()(value.text());
    case Kind::kTuple: {
      const DepthGuard depth;
      size_t hash = 17;
      for (const Value& item : value.items()) {
        Budget::Spend(1);
        hash = hash * 1000003 + Hash(item);
      }
      return hash;
    }
    case Kind::kList:
    case Kind::kDict:
      RaiseTypeError("unhashable type: '" + TypeName(value) + "'");
    case Kind::kObject:
      break;
  }
  return std::hash<const void*>()(value.identity());
}

}  // namespace moewe::text::jinja
