#include "text/jinja/loop.h"

#include "text/jinja/ops.h"

namespace moewe::text::jinja {

LoopObject::~LoopObject() {
  try {
    Value::List(std::move(items_));  // takes nested contents apart without recursion
  } catch (const Exception&) {
  }
}

Str LoopObject::Repr() const {
  return Str("<LoopContext " + std::to_string(index_ + 1) + "/" + std::to_string(items_.size()) +
             ">");
}

std::optional<Value> LoopObject::Attribute(std::string_view name) const {
  const auto index = static_cast<int64_t>(index_);
  const auto length = static_cast<int64_t>(items_.size());
  if (name == "index") return Value::Int(index + 1);
  if (name == "index0") return Value::Int(index);
  if (name == "revindex") return Value::Int(length - index);
  if (name == "revindex0") return Value::Int(length - index - 1);
  if (name == "first") return Value::Bool(index == 0);
  if (name == "last") return Value::Bool(index + 1 == length);
  if (name == "length") return Value::Int(length);
  if (name == "depth") return Value::Int(depth_);
  if (name == "depth0") return Value::Int(depth_ - 1);
  if (name == "previtem" || name == "nextitem") {
    const bool next = name == "nextitem";
    if (next ? index + 1 < length : index > 0) return items_[next ? index_ + 1 : index_ - 1];
    UndefinedInfo info;
    info.hint = next ? "there is no next item" : "there is no previous item";
    return Value::Undefined(std::move(info));
  }
  // The bound method keeps the loop alive.
  auto self = std::const_pointer_cast<LoopObject>(shared_from_this());
  if (name == "cycle") {
    return MakeFunction("cycle", [self](Interpreter&, Args& args) { return self->Cycle(args); });
  }
  if (name == "changed") {
    return MakeFunction(
        "changed", [self](Interpreter&, Args& args) { return Value::Bool(self->Changed(args)); });
  }
  return std::nullopt;
}

Value LoopObject::Call(Interpreter& interpreter, Args& args) {
  if (!stmt_.recursive) {
    RaiseTypeError("The loop must have the 'recursive' marker to be called recursively.");
  }
  if (args.positional.size() != 1 || !args.named.empty()) {
    RaiseTypeError("loop() takes exactly one argument");
  }
  return interpreter.CallLoop(stmt_, frame_, args.positional[0], depth_ + 1);
}

Value LoopObject::Cycle(const Args& args) const {
  if (args.positional.empty()) RaiseTypeError("no items for cycling given");
  return args.positional[index_ % args.positional.size()];
}

bool LoopObject::Changed(const Args& args) {
  if (last_changed_ && jinja::Equals(Value::Tuple(*last_changed_), Value::Tuple(args.positional)))
    return false;
  last_changed_ = args.positional;
  return true;
}

std::optional<Value> Macro::Attribute(std::string_view name) const {
  if (name == "name") return Value::String(definition_.name);
  if (name == "arguments") {
    std::vector<Value> names;
    for (const std::string& parameter : definition_.parameters)
      names.push_back(Value::String(parameter));
    return Value::Tuple(std::move(names));
  }
  if (name == "catch_kwargs") return Value::Bool(definition_.kwargs_slot >= 0);
  if (name == "catch_varargs") return Value::Bool(definition_.varargs_slot >= 0);
  if (name == "caller") {
    return Value::Bool(definition_.caller_slot >= 0 || definition_.explicit_caller);
  }
  return std::nullopt;
}

}  // namespace moewe::text::jinja
