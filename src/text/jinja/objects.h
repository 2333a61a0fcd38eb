// The objects of the template language that are neither numbers, strings nor containers.
#ifndef MOEWE_TEXT_JINJA_OBJECTS_H_
#define MOEWE_TEXT_JINJA_OBJECTS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "text/jinja/value.h"

namespace moewe::text::jinja {

// range(): values are computed, never stored.
class Range final : public HostObject {
 public:
  Range(int64_t start, int64_t stop, int64_t step);
  std::string TypeName() const override { return "range"; }
  Str Repr() const override;
  std::optional<Value> Attribute(std::string_view name) const override;
  std::optional<Value> Item(const Value& key) const override;
  bool HasItems() const override { return true; }
  std::optional<int64_t> Length() const override { return length_; }
  bool Iterable() const override { return true; }
  std::vector<Value> Iterate() override;
  std::optional<bool> Equals(const Value& other) const override;
  std::optional<bool> Contains(const Value& item) const override;

  int64_t At(int64_t index) const { return start_ + index * step_; }
  int64_t start() const { return start_; }
  int64_t stop() const { return stop_; }
  int64_t step() const { return step_; }
  int64_t length() const { return length_; }

 private:
  int64_t start_, stop_, step_, length_;
};

// What filters such as map and reverse give: can be walked through once.
class Iterator final : public HostObject {
 public:
  explicit Iterator(std::vector<Value> items, std::string type = "generator");
  ~Iterator() override;
  std::string TypeName() const override { return type_; }
  bool Iterable() const override { return true; }
  std::vector<Value> Iterate() override;  // takes the rest
  std::optional<Value> Next();

 private:
  std::vector<Value> items_;
  size_t position_ = 0;
  std::string type_;
};

// dict.keys(), values() and items().
class DictView final : public HostObject {
 public:
  enum class Part { kKeys, kValues, kItems };
  DictView(Value dict, Part part) : dict_(std::move(dict)), part_(part) {}
  std::string TypeName() const override;
  Str Repr() const override;
  std::optional<int64_t> Length() const override {
    return static_cast<int64_t>(dict_.dict().size());
  }
  bool Iterable() const override { return true; }
  std::vector<Value> Iterate() override;
  std::optional<bool> Equals(const Value& other) const override;
  std::optional<bool> Contains(const Value& item) const override;

 private:
  Value dict_;
  Part part_;
};

// A built-in function or a method bound to its object.
class Function final : public HostObject {
 public:
  using Body = std::function<Value(Interpreter&, Args&)>;
  Function(std::string name, Body body) : name_(std::move(name)), body_(std::move(body)) {}
  std::string TypeName() const override { return "builtin_function_or_method"; }
  Str Repr() const override { return Str("<built-in function " + name_ + ">"); }
  bool Callable() const override { return true; }
  Value Call(Interpreter& interpreter, Args& args) override { return body_(interpreter, args); }

 private:
  std::string name_;
  Body body_;
};

// A class that templates may call: dict, range, namespace, cycler, joiner.
class TypeObject final : public HostObject {
 public:
  using Constructor = Value (*)(Interpreter&, Args&);
  TypeObject(std::string name, Constructor constructor)
      : name_(std::move(name)), constructor_(constructor) {}
  std::string TypeName() const override { return "type"; }
  Str Repr() const override { return Str("<class '" + name_ + "'>"); }
  std::optional<Value> Attribute(std::string_view attribute) const override;
  bool Callable() const override { return true; }
  Value Call(Interpreter& interpreter, Args& args) override {
    return constructor_(interpreter, args);
  }

 private:
  std::string name_;
  Constructor constructor_;
};

// namespace(): the one thing whose attributes a template may set.
class Namespace final : public HostObject {
 public:
  explicit Namespace(Dict values) : values_(std::move(values)) {}
  std::string TypeName() const override { return "Namespace"; }
  Str Repr() const override;
  std::optional<Value> Attribute(std::string_view name) const override;
  void Set(std::string_view name, Value value);
  void Clear() { values_ = Dict(); }  // breaks reference cycles at the end of a rendering

 private:
  Dict values_;
};

class Cycler final : public HostObject, public std::enable_shared_from_this<Cycler> {
 public:
  explicit Cycler(std::vector<Value> items) : items_(std::move(items)) {}
  std::string TypeName() const override { return "Cycler"; }
  std::optional<Value> Attribute(std::string_view name) const override;
  Value Next();
  void Reset() { position_ = 0; }

 private:
  std::vector<Value> items_;
  size_t position_ = 0;
};

// The first call gives nothing, every later one the separator.
class Joiner final : public HostObject {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}
  std::string TypeName() const override { return "Joiner"; }
  bool Callable() const override { return true; }
  Value Call(Interpreter& interpreter, Args& args) override;

 private:
  Value separator_;
  bool used_ = false;
};

Value MakeFunction(std::string name, Function::Body body);

}  // namespace moewe::text::jinja

#endif  // MOEWE_TEXT_JINJA_OBJECTS_H_
