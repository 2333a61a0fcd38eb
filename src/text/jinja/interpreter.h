// Renders a compiled template.
#ifndef MOEWE_TEXT_JINJA_INTERPRETER_H_
#define MOEWE_TEXT_JINJA_INTERPRETER_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/budget.h"
#include "text/jinja/objects.h"
#include "text/jinja/value.h"

namespace moewe::text::jinja {

// The variables of a scope that is being executed.
struct Frame {
  struct Slot {
    enum class State : uint8_t { kMissing, kContext, kSet };
    State state = State::kMissing;
    Value value;
  };
  std::vector<Slot> slots;
  std::shared_ptr<Frame> parent;
  const Scope* scope = nullptr;
};
using FramePtr = std::shared_ptr<Frame>;

struct RenderResult {
  Str output;
  std::vector<Span> generation_spans;  // of `{% generation %}`, in bytes
};

// One rendering: make it, Run it once. Belongs to one thread, which must have a Budget. The
// template must outlive it.
class Interpreter {
 public:
  // `variables` come before the built-in globals. `now`: ISO local time for strftime_now, empty =
  // the clock.
  Interpreter(const Template& tree, Dict variables, std::string now);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Throws Exception, with a line.
  RenderResult Run();

  // For built-in functions:
  Value Call(const Value& callee, Args& args);
  Value ApplyFilter(std::string_view name, const Value& input, Args& args);
  bool ApplyTest(std::string_view name, const Value& subject, Args& args);
  // The body of a macro or call block, as text.
  Value CallMacro(const MacroDefinition& macro, const FramePtr& frame, Args& args);
  // The body of a recursive loop over other items.
  Value CallLoop(const Stmt& loop, const FramePtr& frame, const Value& items, int depth);
  void Remember(const std::shared_ptr<Namespace>& space) { namespaces_.push_back(space); }
  const std::string& now() const { return now_; }
  bool autoescape() const { return autoescape_; }
  uint32_t Random();  // the same numbers in every rendering

 private:
  enum class Flow { kNext, kBreak, kContinue };

  Flow Execute(const Body& body, const FramePtr& frame);
  Flow Execute(const Stmt& stmt, const FramePtr& frame);
  void ExecuteOutput(const Stmt& stmt, const FramePtr& frame);
  Flow ExecuteIf(const Stmt& stmt, const FramePtr& frame);
  Flow ExecuteFor(const Stmt& stmt, const FramePtr& frame, const Value& iterable, int depth);
  std::vector<Value> KeptItems(const Stmt& stmt, const FramePtr& frame, const Value& iterable);
  void ExecuteCallBlock(const Stmt& stmt, const FramePtr& frame);
  void ExecuteGeneration(const Stmt& stmt, const FramePtr& frame);
  Flow ExecuteFilterBlock(const Stmt& stmt, const FramePtr& frame);
  Flow ExecuteSetBlock(const Stmt& stmt, const FramePtr& frame);
  Flow ExecuteWith(const Stmt& stmt, const FramePtr& frame);
  Flow ExecuteAutoescape(const Stmt& stmt, const FramePtr& frame);
  void Print(const Value& value);
  // What `body` prints, as a string.
  Str Capture(const Body& body, const FramePtr& frame, Flow& flow);
  Value Markup(Str text) const;  // safe if autoescape is on

  Value Evaluate(const Expr& expr, const FramePtr& frame);
  Value EvaluateCompare(const Expr& expr, const FramePtr& frame);
  Value EvaluateConcat(const Expr& expr, const FramePtr& frame);
  Value EvaluateConditional(const Expr& expr, const FramePtr& frame);
  Value EvaluateDict(const Expr& expr, const FramePtr& frame);
  Value EvaluateSlice(const Expr& expr, const FramePtr& frame);
  Value EvaluateCall(const Expr& expr, const FramePtr& frame);
  Value EvaluateFilter(const Expr& expr, const FramePtr& frame, const Value* input = nullptr);
  Value EvaluateTest(const Expr& expr, const FramePtr& frame);
  std::vector<Value> EvaluateAll(const std::vector<ExprPtr>& exprs, const FramePtr& frame);
  // Arguments from operands[1] on.
  Args EvaluateArguments(const Expr& expr, const FramePtr& frame);

  void BindParameters(const MacroDefinition& macro, const FramePtr& frame, Args& args);
  FramePtr Enter(const Scope& scope, const FramePtr& parent);
  void Reset(Frame& frame);  // slots as at the scope's entry
  Value Read(const Variable& variable, const std::string& name, const FramePtr& frame);
  void Write(const Variable& variable, Value value, const FramePtr& frame);
  void Assign(const Expr& target, const Value& value, const FramePtr& frame);
  Value Lookup(const std::string& name) const;  // variables, globals
  void Keep(const FramePtr& frame) { kept_.push_back(frame); }

  const Template& tree_;
  Dict variables_;
  std::string now_;
  Str* out_ = nullptr;
  RenderResult result_;
  int line_ = 0;  // of the current statement
  bool autoescape_ = false;
  uint64_t random_state_ = 0x9E3779B97F4A7C15;
  // Frames that a macro or loop object refers to, and namespaces: they may hold each other, so they
  // are emptied at the end.
  std::vector<std::weak_ptr<Frame>> kept_;
  std::vector<std::weak_ptr<Namespace>> namespaces_;
};

// The built-in globals (range, dict, namespace, raise_exception, ...); null if there is none of
// this name.
const Value* FindGlobal(std::string_view name);

}  // namespace moewe::text::jinja

#endif  // MOEWE_TEXT_JINJA_INTERPRETER_H_
