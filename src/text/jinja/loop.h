// The `loop` variable and macros as values.
#ifndef MOEWE_TEXT_JINJA_LOOP_H_
#define MOEWE_TEXT_JINJA_LOOP_H_

#include <memory>
#include <string>
#include <vector>

#include "text/jinja/interpreter.h"

namespace moewe::text::jinja {

class LoopObject final : public HostObject, public std::enable_shared_from_this<LoopObject> {
 public:
  // `frame` is where a recursive loop stands (its calls enter the body from there), else null.
  LoopObject(const Stmt& stmt, FramePtr frame, std::vector<Value> items, int depth)
      : HostObject(128 + items.capacity() * sizeof(Value)),
        stmt_(stmt),
        frame_(std::move(frame)),
        items_(std::move(items)),
        depth_(depth) {}
  ~LoopObject() override;
  std::string TypeName() const override { return "LoopContext"; }
  Str Repr() const override;
  std::optional<Value> Attribute(std::string_view name) const override;
  std::optional<int64_t> Length() const override { return static_cast<int64_t>(items_.size()); }
  bool Callable() const override { return true; }
  Value Call(Interpreter& interpreter, Args& args) override;

  const std::vector<Value>& items() const { return items_; }
  void MoveTo(size_t index) { index_ = index; }
  Value Cycle(const Args& args) const;
  bool Changed(const Args& args);

 private:
  const Stmt& stmt_;
  FramePtr frame_;
  std::vector<Value> items_;
  size_t index_ = 0;
  int depth_;  // 1 for the outermost
  std::optional<std::vector<Value>> last_changed_;
};

class Macro final : public HostObject {
 public:
  Macro(const MacroDefinition& definition, FramePtr frame)
      : definition_(definition), frame_(std::move(frame)) {}
  std::string TypeName() const override { return "Macro"; }
  Str Repr() const override { return Str("<Macro '" + definition_.name + "'>"); }
  std::optional<Value> Attribute(std::string_view name) const override;
  bool Callable() const override { return true; }
  Value Call(Interpreter& interpreter, Args& args) override {
    return interpreter.CallMacro(definition_, frame_, args);
  }

 private:
  const MacroDefinition& definition_;
  FramePtr frame_;  // where it was defined
};

}  // namespace moewe::text::jinja

#endif  // MOEWE_TEXT_JINJA_LOOP_H_
