// Values of the template language, with Python's semantics.
//
// A Value is cheap to copy: numbers inside, everything else shared and (namespaces, loops and
// iterators apart) immutable, since the sandbox lets no template change a list or a dict. Values of
// a compiled template are read from many threads; those that a rendering makes belong to its
// thread.
#ifndef MOEWE_TEXT_JINJA_VALUE_H_
#define MOEWE_TEXT_JINJA_VALUE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/jinja/bigint.h"
#include "text/jinja/error.h"
#include "text/jinja/str.h"

namespace moewe::text::jinja {

class Dict;
class Interpreter;
class HostObject;

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,     // fits 64 bits
  kBigInt,  // does not fit 64 bits
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kObject,  // everything else, a HostObject
};

// Whatever a Value refers to. Counts its size against the thread's budget.
class Object {
 public:
  virtual ~Object();
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

 protected:
  explicit Object(size_t bytes);

 private:
  size_t charged_ = 0;
};

// A name that leads nowhere: prints as nothing, is false and empty, and an error when used further.
struct UndefinedInfo {
  std::string name;      // of the variable, attribute or element
  std::string owner;     // "dict object"; empty: a variable
  bool element = false;  // "has no element" rather than "has no attribute"
  std::string hint;      // the whole message, if it is another one
  std::string error = "UndefinedError";

  std::string Message() const;
  [[noreturn]] void Fail() const;
};

class Value {
 public:
  Value() = default;  // None
  static Value Undefined(UndefinedInfo info);
  static Value UndefinedVariable(std::string_view name);
  static Value Bool(bool value);
  static Value Int(int64_t value);
  static Value Int(const BigInt& value);  // the small kind if it fits
  static Value Float(double value);
  static Value String(Str value);
  static Value String(std::string_view value) { return String(Str(std::string(value))); }
  static Value List(std::vector<Value> items);
  static Value Tuple(std::vector<Value> items);
  // A tuple whose two items are also the attributes `grouper` and `list` (groupby).
  static Value Group(Value grouper, Value list);
  static Value Map(Dict dict);
  static Value Host(std::shared_ptr<HostObject> object);

  Kind kind() const { return kind_; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_bool() const { return kind_ == Kind::kBool; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_list() const { return kind_ == Kind::kList; }
  bool is_tuple() const { return kind_ == Kind::kTuple; }
  bool is_dict() const { return kind_ == Kind::kDict; }
  bool is_float() const { return kind_ == Kind::kFloat; }
  // int, in Python's sense: a bool is one, too.
  bool is_integer() const {
    return kind_ == Kind::kInt || kind_ == Kind::kBigInt || kind_ == Kind::kBool;
  }
  bool is_number() const { return is_integer() || is_float(); }

  // Each only for its kind.
  bool boolean() const { return integer_ != 0; }
  int64_t small_int() const { return integer_; }  // kInt and kBool
  double real() const { return real_; }
  const BigInt& big() const;
  const Str& str() const;
  const std::string& text() const { return str().text; }
  const std::vector<Value>& items() const;  // list, tuple
  const Dict& dict() const;
  const UndefinedInfo& undefined() const;
  HostObject& host() const;
  bool is_group() const;
  const void* identity() const { return ref_.get(); }

  // The object if this is a T, else null.
  template <typename T>
  T* As() const {
    return kind_ == Kind::kObject ? dynamic_cast<T*>(ref_.get()) : nullptr;
  }

  BigInt ToBig() const;     // any integer
  double ToDouble() const;  // any number; OverflowError
  bool SharesNothing() const { return ref_.use_count() <= 1; }
  // For the destructors of containers: gives up the reference.
  std::shared_ptr<Object> Detach() { return std::move(ref_); }

 private:
  Kind kind_ = Kind::kNone;
  union {
    int64_t integer_ = 0;
    double real_;
  };
  std::shared_ptr<Object> ref_;
};

// A dict: keeps the order of insertion, finds keys by Python's equality (1 == 1.0 == True).
class Dict {
 public:
  struct Entry {
    Value key;
    Value value;
  };
  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  // Null if absent. TypeError for a key that can't be hashed.
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  void Set(Value key, Value value);
  std::vector<Entry>& mutable_entries() { return entries_; }

 private:
  static constexpr size_t kIndexFrom = 9;  // smaller ones are searched in order
  std::vector<Entry> entries_;
  std::unordered_multimap<size_t, size_t> index_;  // hash -> position, once there are kIndexFrom
};

struct NamedArg {
  Str name;
  Value value;
};
struct Args {
  std::vector<Value> positional;
  std::vector<NamedArg> named;
};

// Objects with behaviour of their own. The defaults are those of an opaque object.
class HostObject : public Object {
 public:
  explicit HostObject(size_t bytes = 64) : Object(bytes) {}
  virtual std::string TypeName() const = 0;
  virtual Str Repr() const;
  virtual std::optional<Value> Attribute(std::string_view) const { return std::nullopt; }
  // Throws TypeError if it has no items; nothing if the key is absent.
  virtual std::optional<Value> Item(const Value& key) const;
  virtual bool HasItems() const { return false; }
  virtual std::optional<int64_t> Length() const { return std::nullopt; }
  virtual bool Iterable() const { return false; }
  virtual std::vector<Value> Iterate();  // TypeError if not iterable
  virtual bool Callable() const { return false; }
  virtual Value Call(Interpreter& interpreter, Args& args);
  // Whether equality is more than identity, and then its value.
  virtual std::optional<bool> Equals(const Value&) const { return std::nullopt; }
  virtual std::optional<bool> Contains(const Value&) const { return std::nullopt; }
};

// "str", "NoneType", "Undefined", ...
std::string TypeName(const Value& value);
// "dict object", "None": how messages name an owner.
std::string OwnerName(const Value& value);
size_t Hash(const Value& value);  // TypeError if unhashable
bool Hashable(const Value& value);

}  // namespace moewe::text::jinja

#endif  // MOEWE_TEXT_JINJA_VALUE_H_
