// The syntax tree of a template. Built by the parser, completed by the resolver, read-only
// afterwards.
#ifndef MOEWE_TEXT_JINJA_AST_H_
#define MOEWE_TEXT_JINJA_AST_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/ops.h"
#include "text/jinja/value.h"

namespace moewe::text::jinja {

// Where a variable lives: `hops` frames outwards, then slot number `slot`.
struct Variable {
  int hops = 0;
  int slot = -1;
};

enum class ExprKind {
  kConst,         // constant
  kName,          // name, variable
  kNamespaceRef,  // target only: name.attribute; variable is the namespace's
  kList,          // operands
  kTuple,         // operands
  kDict,          // operands: key, value, key, value...
  kNot,
  kNegate,
  kPositive,
  kBinary,   // op
  kConcat,   // operands
  kCompare,  // operands[0] compare_ops[0] operands[1] ...
  kAnd,
  kOr,
  kConditional,  // value, condition, alternative (null: undefined)
  kAttribute,    // operands[0].name
  kItem,         // operands[0][operands[1]]
  kSlice,        // operands[0][operands[1]:operands[2]:operands[3]], parts may be null
  kCall,         // operands[0](rest, keywords, ...)
  kFilter,       // operands[0] | name(rest, ...); operands[0] is null in filter blocks
  kTest,         // operands[0] is name(rest, ...)
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  ExprKind kind = ExprKind::kConst;
  int line = 0;
  int depth = 1;  // of the tree below; limited by the parser
  std::string name;
  std::string attribute;  // kNamespaceRef
  Value constant;
  BinaryOp op = BinaryOp::kAdd;
  std::vector<CompareOp> compare_ops;
  std::vector<ExprPtr> operands;
  std::vector<std::pair<std::string, ExprPtr>> keywords;
  ExprPtr star_args;    // *x
  ExprPtr star_kwargs;  // **x
  Variable variable;
};

// How a slot of a scope begins its life each time that the scope is entered.
struct SlotInit {
  enum class Load {
    kUndefined,  // not set yet
    kContext,    // looked up in the template's variables when first read
    kAlias,      // a copy of an outer variable
    kParameter,  // set by whoever enters the scope
  };
  std::string name;
  Load load = Load::kUndefined;
  Variable outer;  // kAlias; hops counted from the enclosing frame
};

// The variables of a scope: a template, a loop's body, a macro...
struct Scope {
  std::vector<SlotInit> slots;
};

enum class StmtKind {
  kOutput,       // exprs
  kIf,           // branches
  kFor,          // target in exprs[0] if exprs[1] (may be null); body, alternative; recursive
  kMacro,        // macro
  kCallBlock,    // exprs[0] is the call; macro is the caller
  kGeneration,   // body: text of the assistant
  kFilterBlock,  // exprs[0] is a filter without input; body
  kSet,          // target = exprs[0]
  kSetBlock,     // target = body, through exprs[0] (a filter without input, may be null)
  kWith,         // targets = exprs; body
  kBlock,        // name, body
  kAutoescape,   // exprs[0], body
  kBreak,
  kContinue,
  kLoad,  // include, import, from, extends: exprs[0]; always an error, there is no loader
};

struct Stmt;
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

struct IfBranch {
  ExprPtr condition;  // null: else
  Body body;
};

struct MacroDefinition {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  Body body;
  int line = 0;
  Scope scope;
  std::vector<int> slots;  // of the parameters
  // Slots of the special variables, -1 if the body does not use them.
  int caller_slot = -1;
  int kwargs_slot = -1;
  int varargs_slot = -1;
  bool explicit_caller = false;  // `caller` is among the parameters
};

struct Stmt {
  StmtKind kind = StmtKind::kOutput;
  int line = 0;
  std::string name;
  std::vector<ExprPtr> exprs;
  std::vector<ExprPtr> targets;
  std::vector<IfBranch> branches;
  Body body;
  Body alternative;
  std::unique_ptr<MacroDefinition> macro;
  bool recursive = false;
  Variable variable;   // kMacro: where the macro goes
  Scope scope;         // of body
  Scope other_scope;   // kFor: of alternative
  Scope test_scope;    // kFor: of the condition
  int loop_slot = -1;  // kFor: of `loop` in scope
};

struct Template {
  Body body;
  Scope scope;
};

// Parses and resolves. Throws Exception: TemplateSyntaxError, TemplateAssertionError, SyntaxError.
Template ParseTemplate(std::string_view source);  // the parser's half
void ResolveTemplate(Template& tree);             // scopes; unknown filters and tests
Template CompileTemplate(std::string_view source);

}  // namespace moewe::text::jinja

#endif  // MOEWE_TEXT_JINJA_AST_H_
