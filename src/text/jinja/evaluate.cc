// The expressions, and calls of macros.
#include "text/jinja/attributes.h"
#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/loop.h"
#include "text/jinja/ops.h"
#include "text/jinja/printer.h"
#include "text/jinja/tests.h"

namespace moewe::text::jinja {

Value Interpreter::Evaluate(const Expr& expr, const FramePtr& frame) {
  const DepthGuard depth;
  Budget::Spend(1);
  const auto operand = [&](size_t i) { return Evaluate(*expr.operands[i], frame); };
  switch (expr.kind) {
    case ExprKind::kConst:
      return expr.constant;
    case ExprKind::kName:
      return Read(expr.variable, expr.name, frame);
    case ExprKind::kNamespaceRef:
      return GetAttribute(Read(expr.variable, expr.name, frame), expr.attribute);
    case ExprKind::kList:
      return Value::List(EvaluateAll(expr.operands, frame));
    case ExprKind::kTuple:
      return Value::Tuple(EvaluateAll(expr.operands, frame));
    case ExprKind::kDict:
      return EvaluateDict(expr, frame);
    case ExprKind::kNot:
      return Value::Bool(!Truth(operand(0)));
    case ExprKind::kNegate:
      return Negate(operand(0));
    case ExprKind::kPositive:
      return Positive(operand(0));
    case ExprKind::kBinary: {
      const Value left = operand(0);
      return Binary(expr.op, left, operand(1));
    }
    case ExprKind::kConcat:
      return EvaluateConcat(expr, frame);
    case ExprKind::kCompare:
      return EvaluateCompare(expr, frame);
    case ExprKind::kAnd:
    case ExprKind::kOr: {
      Value left = operand(0);
      return Truth(left) == (expr.kind == ExprKind::kOr) ? left : operand(1);
    }
    case ExprKind::kConditional:
      return EvaluateConditional(expr, frame);
    case ExprKind::kAttribute:
      return GetAttribute(operand(0), expr.name);
    case ExprKind::kItem: {
      const Value object = operand(0);
      return GetItem(object, operand(1));
    }
    case ExprKind::kSlice:
      return EvaluateSlice(expr, frame);
    case ExprKind::kCall:
      return EvaluateCall(expr, frame);
    case ExprKind::kFilter:
      return EvaluateFilter(expr, frame);
    case ExprKind::kTest:
      return EvaluateTest(expr, frame);
  }
  return Value();
}

std::vector<Value> Interpreter::EvaluateAll(const std::vector<ExprPtr>& exprs,
                                            const FramePtr& frame) {
  std::vector<Value> values;
  values.reserve(exprs.size());
  for (const ExprPtr& expr : exprs) values.push_back(Evaluate(*expr, frame));
  return values;
}

Value Interpreter::EvaluateDict(const Expr& expr, const FramePtr& frame) {
  Dict dict;
  for (size_t i = 0; i + 1 < expr.operands.size(); i += 2) {
    Value key = Evaluate(*expr.operands[i], frame);
    dict.Set(std::move(key), Evaluate(*expr.operands[i + 1], frame));
  }
  return Value::Map(std::move(dict));
}

Value Interpreter::EvaluateConcat(const Expr& expr, const FramePtr& frame) {
  const std::vector<Value> parts = EvaluateAll(expr.operands, frame);
  Str out;
  // Under autoescape one safe part makes the whole safe, and the others are escaped.
  if (autoescape_) {
    for (const Value& part : parts) out.safe = out.safe || (part.is_string() && part.str().safe);
  }
  for (const Value& part : parts) {
    if (out.safe) {
      out.Append(Escaped(part));
    } else {
      AppendStr(out, part);
    }
  }
  return Value::String(std::move(out));
}

Value Interpreter::EvaluateCompare(const Expr& expr, const FramePtr& frame) {
  Value left = Evaluate(*expr.operands[0], frame);
  for (size_t i = 0; i < expr.compare_ops.size(); ++i) {
    Value right = Evaluate(*expr.operands[i + 1], frame);
    if (!Compare(expr.compare_ops[i], left, right)) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Value Interpreter::EvaluateConditional(const Expr& expr, const FramePtr& frame) {
  if (Truth(Evaluate(*expr.operands[1], frame))) return Evaluate(*expr.operands[0], frame);
  if (expr.operands[2] != nullptr) return Evaluate(*expr.operands[2], frame);
  UndefinedInfo info;
  info.hint = "the inline if-expression on line " + std::to_string(expr.line) +
              " evaluated to false and no else section was defined.";
  return Value::Undefined(std::move(info));
}

Value Interpreter::EvaluateSlice(const Expr& expr, const FramePtr& frame) {
  const Value object = Evaluate(*expr.operands[0], frame);
  const auto part = [&](size_t i) {
    return expr.operands[i] == nullptr ? Value() : Evaluate(*expr.operands[i], frame);
  };
  const Value start = part(1);
  const Value stop = part(2);
  return GetSlice(object, start, stop, part(3));
}

Args Interpreter::EvaluateArguments(const Expr& expr, const FramePtr& frame) {
  Args args;
  for (size_t i = 1; i < expr.operands.size(); ++i) {
    args.positional.push_back(Evaluate(*expr.operands[i], frame));
  }
  for (const auto& [name, value] : expr.keywords) {
    for (const NamedArg& other : args.named) {
      if (other.name.text == name) Raise("SyntaxError", "keyword argument repeated: " + name);
    }
    args.named.push_back({Str(name), Evaluate(*value, frame)});
  }
  if (expr.star_args != nullptr) {
    const Value more = Evaluate(*expr.star_args, frame);
    if (!Iterable(more)) {
      RaiseTypeError("argument after * must be an iterable, not " + TypeName(more));
    }
    for (Value& value : Iterate(more)) args.positional.push_back(std::move(value));
  }
  if (expr.star_kwargs != nullptr) {
    const Value more = Evaluate(*expr.star_kwargs, frame);
    if (!more.is_dict())
      RaiseTypeError("argument after ** must be a mapping, not " + TypeName(more));
    for (const Dict::Entry& entry : more.dict().entries()) {
      if (!entry.key.is_string()) RaiseTypeError("keywords must be strings");
      for (const NamedArg& other : args.named) {
        if (other.name.text == entry.key.text()) {
          RaiseTypeError("got multiple values for keyword argument '" + entry.key.text() + "'");
        }
      }
      args.named.push_back({entry.key.str(), entry.value});
    }
  }
  return args;
}

Value Interpreter::EvaluateCall(const Expr& expr, const FramePtr& frame) {
  const Value callee = Evaluate(*expr.operands[0], frame);
  Args args = EvaluateArguments(expr, frame);
  return Call(callee, args);
}

Value Interpreter::Call(const Value& callee, Args& args) {
  if (callee.is_undefined()) callee.undefined().Fail();
  if (callee.kind() != Kind::kObject || !callee.host().Callable()) {
    RaiseTypeError("'" + TypeName(callee) + "' object is not callable");
  }
  return callee.host().Call(*this, args);
}

Value Interpreter::EvaluateFilter(const Expr& expr, const FramePtr& frame, const Value* input) {
  // A chain of filters on a block has no expression at its beginning.
  Value subject;
  if (expr.operands[0] == nullptr) {
    subject = *input;
  } else if (input != nullptr && expr.operands[0]->kind == ExprKind::kFilter) {
    subject = EvaluateFilter(*expr.operands[0], frame, input);
  } else {
    subject = Evaluate(*expr.operands[0], frame);
  }
  Args args = EvaluateArguments(expr, frame);
  const FilterFunction filter = FindFilter(expr.name);
  if (filter == nullptr)
    Raise("TemplateRuntimeError", "No filter named '" + expr.name + "' found.");
  return filter(*this, subject, args);
}

Value Interpreter::EvaluateTest(const Expr& expr, const FramePtr& frame) {
  const Value subject = Evaluate(*expr.operands[0], frame);
  Args args = EvaluateArguments(expr, frame);
  const TestFunction test = FindTest(expr.name);
  if (test == nullptr) Raise("TemplateRuntimeError", "No test named '" + expr.name + "' found.");
  return Value::Bool(test(subject, args));
}

Value Interpreter::ApplyFilter(std::string_view name, const Value& input, Args& args) {
  const FilterFunction filter = FindFilter(name);
  if (filter == nullptr)
    Raise("TemplateRuntimeError", "No filter named '" + std::string(name) + "'.");
  Budget::Spend(1);
  return filter(*this, input, args);
}

bool Interpreter::ApplyTest(std::string_view name, const Value& subject, Args& args) {
  const TestFunction test = FindTest(name);
  if (test == nullptr) Raise("TemplateRuntimeError", "No test named '" + std::string(name) + "'.");
  Budget::Spend(1);
  return test(subject, args);
}

uint32_t Interpreter::Random() {
  // SplitMix64.
  uint64_t z = (random_state_ += 0x9E3779B97F4A7C15);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return static_cast<uint32_t>((z ^ (z >> 31)) >> 32);
}

namespace {

Value MissingParameter(const std::string& name) {
  UndefinedInfo info;
  info.name = name;
  info.hint = "parameter '" + name + "' was not provided";
  return Value::Undefined(std::move(info));
}

// Takes a named argument out of the list.
std::optional<Value> TakeNamed(Args& args, std::string_view name) {
  for (size_t i = 0; i < args.named.size(); ++i) {
    if (args.named[i].name.text != name) continue;
    Value value = std::move(args.named[i].value);
    args.named.erase(args.named.begin() + static_cast<std::ptrdiff_t>(i));
    return value;
  }
  return std::nullopt;
}

}  // namespace

void Interpreter::BindParameters(const MacroDefinition& macro, const FramePtr& frame, Args& args) {
  const auto set = [&](int slot, Value value) {
    Frame::Slot& target = frame->slots[static_cast<size_t>(slot)];
    target.value = std::move(value);
    target.state = Frame::Slot::State::kSet;
  };
  const size_t count = macro.parameters.size();
  const size_t given = std::min(args.positional.size(), count);
  for (size_t i = 0; i < given; ++i) set(macro.slots[i], args.positional[i]);
  std::vector<size_t> missing;
  bool found_caller = false;
  for (size_t i = 0; i < count; ++i) {
    if (macro.parameters[i] == "caller") found_caller = true;
    if (i < given) continue;
    if (auto value = TakeNamed(args, macro.parameters[i])) {
      set(macro.slots[i], *std::move(value));
    } else {
      missing.push_back(i);
    }
  }
  // Defaults are evaluated inside the macro, where earlier parameters are known.
  for (const size_t i : missing) {
    const size_t first_default = count - macro.defaults.size();
    set(macro.slots[i], i >= first_default ? Evaluate(*macro.defaults[i - first_default], frame)
                                           : MissingParameter(macro.parameters[i]));
  }
  if (macro.caller_slot >= 0 && !found_caller) {
    auto caller = TakeNamed(args, "caller");
    UndefinedInfo info;
    info.hint = "No caller defined";
    set(macro.caller_slot,
        caller && !caller->is_none() ? *std::move(caller) : Value::Undefined(std::move(info)));
  }
  if (macro.kwargs_slot >= 0) {
    Dict named;
    for (NamedArg& arg : args.named)
      named.Set(Value::String(std::move(arg.name)), std::move(arg.value));
    set(macro.kwargs_slot, Value::Map(std::move(named)));
  } else if (!args.named.empty()) {
    if (args.named.front().name.text == "caller" || TakeNamed(args, "caller")) {
      RaiseTypeError("macro '" + macro.name +
                     "' was invoked with two values for the special caller argument. "
                     "This is most likely a bug.");
    }
    RaiseTypeError("macro '" + macro.name + "' takes no keyword argument '" +
                   args.named.front().name.text + "'");
  }
  if (macro.varargs_slot >= 0) {
    std::vector<Value> rest(args.positional.begin() + static_cast<std::ptrdiff_t>(given),
                            args.positional.end());
    set(macro.varargs_slot, Value::Tuple(std::move(rest)));
  } else if (args.positional.size() > count) {
    RaiseTypeError("macro '" + macro.name + "' takes not more than " + std::to_string(count) +
                   " argument(s)");
  }
}

Value Interpreter::CallMacro(const MacroDefinition& macro, const FramePtr& defined_in, Args& args) {
  const DepthGuard depth;
  const int line = line_;
  const FramePtr frame = Enter(macro.scope, defined_in);
  BindParameters(macro, frame, args);
  Flow flow = Flow::kNext;
  Value text = Markup(Capture(macro.body, frame, flow));
  line_ = line;
  return text;
}

}  // namespace moewe::text::jinja
