// The statements.
#include "text/jinja/interpreter.h"
#include "text/jinja/loop.h"
#include "text/jinja/ops.h"
#include "text/jinja/printer.h"

namespace moewe::text::jinja {

Interpreter::Interpreter(const Template& tree, Dict variables, std::string now)
    : tree_(tree), variables_(std::move(variables)), now_(std::move(now)) {}

Interpreter::~Interpreter() {
  for (const auto& weak : namespaces_) {
    if (const auto space = weak.lock()) space->Clear();
  }
  for (const auto& weak : kept_) {
    if (const auto frame = weak.lock()) {
      const std::vector<Frame::Slot> slots = std::move(frame->slots);
      frame->slots.clear();
    }
  }
}

RenderResult Interpreter::Run() {
  try {
    out_ = &result_.output;
    const FramePtr frame = Enter(tree_.scope, nullptr);
    Keep(frame);
    Execute(tree_.body, frame);
    return std::move(result_);
  } catch (Exception& exception) {
    if (exception.line == 0) exception.line = line_;
    throw;
  }
}

Interpreter::Flow Interpreter::Execute(const Body& body, const FramePtr& frame) {
  const DepthGuard depth;
  for (const StmtPtr& stmt : body) {
    const Flow flow = Execute(*stmt, frame);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::Execute(const Stmt& stmt, const FramePtr& frame) {
  Budget::Spend(1);
  line_ = stmt.line;
  switch (stmt.kind) {
    case StmtKind::kOutput:
      ExecuteOutput(stmt, frame);
      return Flow::kNext;
    case StmtKind::kIf:
      return ExecuteIf(stmt, frame);
    case StmtKind::kFor:
      return ExecuteFor(stmt, frame, Evaluate(*stmt.exprs[0], frame), 1);
    case StmtKind::kMacro:
      Keep(frame);
      Write(stmt.variable, Value::Host(std::make_shared<Macro>(*stmt.macro, frame)), frame);
      return Flow::kNext;
    case StmtKind::kCallBlock:
      ExecuteCallBlock(stmt, frame);
      return Flow::kNext;
    case StmtKind::kGeneration:
      ExecuteGeneration(stmt, frame);
      return Flow::kNext;
    case StmtKind::kFilterBlock:
      return ExecuteFilterBlock(stmt, frame);
    case StmtKind::kSet:
      Assign(*stmt.targets[0], Evaluate(*stmt.exprs[0], frame), frame);
      return Flow::kNext;
    case StmtKind::kSetBlock:
      return ExecuteSetBlock(stmt, frame);
    case StmtKind::kWith:
      return ExecuteWith(stmt, frame);
    case StmtKind::kBlock: {
      FramePtr root = frame;
      while (root->parent != nullptr) root = root->parent;
      return Execute(stmt.body, Enter(stmt.scope, root));
    }
    case StmtKind::kAutoescape:
      return ExecuteAutoescape(stmt, frame);
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
    case StmtKind::kLoad:
      Evaluate(*stmt.exprs[0], frame);
      RaiseTypeError("no loader for this environment specified");
  }
  return Flow::kNext;
}

void Interpreter::Print(const Value& value) {
  if (autoescape_) {
    out_->Append(Escaped(value));
  } else {
    AppendStr(*out_, value);
  }
}

void Interpreter::ExecuteOutput(const Stmt& stmt, const FramePtr& frame) {
  for (const ExprPtr& expr : stmt.exprs) {
    Budget::Spend(1);
    if (expr->kind == ExprKind::kConst && expr->constant.is_string() && expr->constant.str().safe) {
      out_->Append(expr->constant.str());
      continue;
    }
    line_ = expr->line;
    Print(Evaluate(*expr, frame));
  }
}

Interpreter::Flow Interpreter::ExecuteIf(const Stmt& stmt, const FramePtr& frame) {
  for (const IfBranch& branch : stmt.branches) {
    if (branch.condition == nullptr || Truth(Evaluate(*branch.condition, frame))) {
      return Execute(branch.body, frame);
    }
  }
  return Flow::kNext;
}

std::vector<Value> Interpreter::KeptItems(const Stmt& stmt, const FramePtr& frame,
                                          const Value& iterable) {
  std::vector<Value> items = Iterate(iterable);
  if (stmt.exprs[1] == nullptr) return items;
  std::vector<Value> kept;
  const FramePtr test = Enter(stmt.test_scope, frame);
  for (Value& item : items) {
    Reset(*test);
    Assign(*stmt.targets[0], item,
           test);  // the resolver gave the target the same slots as in the body
    if (Truth(Evaluate(*stmt.exprs[1], test))) kept.push_back(std::move(item));
  }
  return kept;
}

Interpreter::Flow Interpreter::ExecuteFor(const Stmt& stmt, const FramePtr& frame,
                                          const Value& iterable, int depth) {
  const auto loop = std::make_shared<LoopObject>(stmt, stmt.recursive ? frame : nullptr,
                                                 KeptItems(stmt, frame, iterable), depth);
  if (stmt.recursive) Keep(frame);
  const Value loop_value = Value::Host(loop);
  const size_t count = loop->items().size();
  const FramePtr inner = Enter(stmt.scope, frame);
  for (size_t i = 0; i < count; ++i) {
    Budget::Spend(1);
    if (i > 0) Reset(*inner);
    loop->MoveTo(i);
    Frame::Slot& slot = inner->slots[static_cast<size_t>(stmt.loop_slot)];
    slot.state = Frame::Slot::State::kSet;
    slot.value = loop_value;
    Assign(*stmt.targets[0], loop->items()[i], inner);
    if (Execute(stmt.body, inner) == Flow::kBreak) break;
  }
  if (count == 0 && !stmt.alternative.empty()) {
    return Execute(stmt.alternative, Enter(stmt.other_scope, frame));
  }
  return Flow::kNext;
}

Value Interpreter::CallLoop(const Stmt& loop, const FramePtr& frame, const Value& items,
                            int depth) {
  Str captured;
  Str* const outer = std::exchange(out_, &captured);
  try {
    ExecuteFor(loop, frame, items, depth);
  } catch (...) {
    out_ = outer;
    throw;
  }
  out_ = outer;
  return Markup(std::move(captured));
}

Str Interpreter::Capture(const Body& body, const FramePtr& frame, Flow& flow) {
  Str captured;
  Str* const outer = std::exchange(out_, &captured);
  try {
    flow = Execute(body, frame);
  } catch (...) {
    out_ = outer;
    throw;
  }
  out_ = outer;
  return captured;
}

Value Interpreter::Markup(Str text) const {
  text.safe = autoescape_;
  return Value::String(std::move(text));
}

void Interpreter::ExecuteCallBlock(const Stmt& stmt, const FramePtr& frame) {
  const Expr& call = *stmt.exprs[0];
  const Value callee = Evaluate(*call.operands[0], frame);
  Args args = EvaluateArguments(call, frame);
  Keep(frame);
  args.named.push_back({Str("caller"), Value::Host(std::make_shared<Macro>(*stmt.macro, frame))});
  Print(Call(callee, args));
}

void Interpreter::ExecuteGeneration(const Stmt& stmt, const FramePtr& frame) {
  Flow flow = Flow::kNext;
  const Str text = Capture(stmt.body, Enter(stmt.scope, frame), flow);
  const size_t begin = result_.output.text.size();
  result_.generation_spans.push_back({begin, begin + text.text.size()});
  out_->Append(text);
}

Interpreter::Flow Interpreter::ExecuteFilterBlock(const Stmt& stmt, const FramePtr& frame) {
  Flow flow = Flow::kNext;
  const Value text = Markup(Capture(stmt.body, Enter(stmt.scope, frame), flow));
  // A break inside leaves before the filter runs.
  if (flow == Flow::kNext) Print(EvaluateFilter(*stmt.exprs[0], frame, &text));
  return flow;
}

Interpreter::Flow Interpreter::ExecuteSetBlock(const Stmt& stmt, const FramePtr& frame) {
  Flow flow = Flow::kNext;
  Value text = Markup(Capture(stmt.body, Enter(stmt.scope, frame), flow));
  if (flow != Flow::kNext) return flow;
  if (stmt.exprs[0] != nullptr) text = EvaluateFilter(*stmt.exprs[0], frame, &text);
  Assign(*stmt.targets[0], text, frame);
  return flow;
}

Interpreter::Flow Interpreter::ExecuteWith(const Stmt& stmt, const FramePtr& frame) {
  const FramePtr inner = Enter(stmt.scope, frame);
  for (size_t i = 0; i < stmt.targets.size(); ++i) {
    Assign(*stmt.targets[i], Evaluate(*stmt.exprs[i], frame), inner);
  }
  return Execute(stmt.body, inner);
}

Interpreter::Flow Interpreter::ExecuteAutoescape(const Stmt& stmt, const FramePtr& frame) {
  const bool before = std::exchange(autoescape_, Truth(Evaluate(*stmt.exprs[0], frame)));
  Flow flow = Flow::kNext;
  try {
    flow = Execute(stmt.body, Enter(stmt.scope, frame));
  } catch (...) {
    autoescape_ = before;
    throw;
  }
  autoescape_ = before;
  return flow;
}

FramePtr Interpreter::Enter(const Scope& scope, const FramePtr& parent) {
  auto frame = std::make_shared<Frame>();
  frame->slots.resize(scope.slots.size());
  frame->parent = parent;
  frame->scope = &scope;
  Reset(*frame);
  return frame;
}

namespace {

Frame::Slot& SlotOf(const Variable& variable, Frame* frame) {
  for (int i = 0; i < variable.hops; ++i) frame = frame->parent.get();
  return frame->slots[static_cast<size_t>(variable.slot)];
}

}  // namespace

void Interpreter::Reset(Frame& frame) {
  using State = Frame::Slot::State;
  for (size_t i = 0; i < frame.slots.size(); ++i) {
    const SlotInit& init = frame.scope->slots[i];
    Frame::Slot& slot = frame.slots[i];
    if (init.load == SlotInit::Load::kAlias) {
      // `outer` counts from this scope, whose own frame is hop 0.
      slot = SlotOf(init.outer, frame.parent.get());
      if (slot.state == State::kContext) {
        slot.value = Lookup(init.name);
        slot.state = State::kSet;
      }
      continue;
    }
    slot.value = Value();
    slot.state = init.load == SlotInit::Load::kContext ? State::kContext : State::kMissing;
  }
}

Value Interpreter::Lookup(const std::string& name) const {
  if (const Value* value = variables_.Find(name)) return *value;
  if (const Value* value = FindGlobal(name)) return *value;
  return Value::UndefinedVariable(name);
}

Value Interpreter::Read(const Variable& variable, const std::string& name, const FramePtr& frame) {
  using State = Frame::Slot::State;
  Frame::Slot& slot = SlotOf(variable, frame.get());
  if (slot.state == State::kSet) return slot.value;
  if (slot.state == State::kMissing) return Value::UndefinedVariable(name);
  slot.value = Lookup(name);
  slot.state = State::kSet;
  return slot.value;
}

void Interpreter::Write(const Variable& variable, Value value, const FramePtr& frame) {
  Frame::Slot& slot = SlotOf(variable, frame.get());
  slot.value = std::move(value);
  slot.state = Frame::Slot::State::kSet;
}

void Interpreter::Assign(const Expr& target, const Value& value, const FramePtr& frame) {
  if (target.kind == ExprKind::kName) {
    Write(target.variable, value, frame);
    return;
  }
  if (target.kind == ExprKind::kNamespaceRef) {
    const Value owner = Read(target.variable, target.name, frame);
    Namespace* space = owner.As<Namespace>();
    if (space == nullptr) {
      Raise("TemplateRuntimeError", "cannot assign attribute on non-namespace object");
    }
    if (target.attribute.starts_with("_")) {
      Raise("SecurityError",
            "Chat templates cannot store underscore-prefixed attributes on a namespace, but got '" +
                target.attribute + "'. Please rename the attribute.");
    }
    space->Set(target.attribute, value);
    return;
  }
  const std::vector<Value> items = Iterate(value);
  const size_t wanted = target.operands.size();
  if (items.size() > wanted) {
    RaiseValueError("too many values to unpack (expected " + std::to_string(wanted) + ")");
  }
  if (items.size() < wanted) {
    RaiseValueError("not enough values to unpack (expected " + std::to_string(wanted) + ", got " +
                    std::to_string(items.size()) + ")");
  }
  for (size_t i = 0; i < wanted; ++i) Assign(*target.operands[i], items[i], frame);
}

}  // namespace moewe::text::jinja
