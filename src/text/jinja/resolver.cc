// Gives every name of a template its place, and refuses what can be known to be wrong before
// rendering.
//
// Jinja decides at compile time which variable a name means, and templates can tell: a name that is
// stored anywhere in a scope belongs to that scope as a whole. So for each scope all names are
// collected first (Symbols), with what each of them is when the scope is entered; then its
// expressions are resolved, and inner scopes follow in the same way.
#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/filters.h"
#include "text/jinja/symbols.h"
#include "text/jinja/tests.h"

namespace moewe::text::jinja {
namespace {

bool Mentions(const Body& body, std::string_view name);
bool Mentions(const ExprPtr& expr, std::string_view name) {
  if (expr == nullptr) return false;
  if (expr->kind == ExprKind::kName && expr->name == name) return true;
  for (const ExprPtr& operand : expr->operands) {
    if (Mentions(operand, name)) return true;
  }
  for (const auto& [key, value] : expr->keywords) {
    if (Mentions(value, name)) return true;
  }
  return Mentions(expr->star_args, name) || Mentions(expr->star_kwargs, name);
}
bool Mentions(const std::vector<ExprPtr>& exprs, std::string_view name) {
  return std::any_of(exprs.begin(), exprs.end(),
                     [&](const ExprPtr& e) { return Mentions(e, name); });
}
bool Mentions(const Body& body, std::string_view name) {
  for (const StmtPtr& stmt : body) {
    if (stmt->kind == StmtKind::kBlock) continue;
    if (Mentions(stmt->exprs, name) || Mentions(stmt->body, name) ||
        Mentions(stmt->alternative, name))
      return true;
    for (const IfBranch& branch : stmt->branches) {
      if (Mentions(branch.condition, name) || Mentions(branch.body, name)) return true;
    }
    if (stmt->macro != nullptr &&
        (Mentions(stmt->macro->defaults, name) || Mentions(stmt->macro->body, name))) {
      return true;
    }
  }
  return false;
}

// Resolves the expressions of a scope and enters the inner ones.
class Resolver {
 public:
  void Run(Template& tree) {
    Symbols symbols(nullptr, &tree.scope);
    Collector(symbols).Visit(tree.body);
    symbols.Finish();
    root_ = &symbols;
    Resolve(tree.body, symbols);
  }

 private:
  [[noreturn]] static void FailAssertion(std::string message, int line) {
    Raise("TemplateAssertionError", std::move(message), line);
  }

  // A place where unknown filters and tests are found only when they are reached.
  class Soft {
   public:
    Soft(Resolver& resolver, bool soft)
        : resolver_(resolver), before_(std::exchange(resolver.soft_, soft)) {}
    ~Soft() { resolver_.soft_ = before_; }

   private:
    Resolver& resolver_;
    bool before_;
  };
  class Loop {
   public:
    Loop(Resolver& resolver, bool in_loop)
        : resolver_(resolver), before_(std::exchange(resolver.in_loop_, in_loop)) {}
    ~Loop() { resolver_.in_loop_ = before_; }

   private:
    Resolver& resolver_;
    bool before_;
  };

  void Resolve(const ExprPtr& expr, const Symbols& symbols) {
    if (expr == nullptr) return;
    if (expr->kind == ExprKind::kName) expr->variable = *symbols.Find(expr->name);
    if (expr->kind == ExprKind::kConditional) {
      const Soft soft(*this, true);
      for (const ExprPtr& operand : expr->operands) Resolve(operand, symbols);
      return;
    }
    if (expr->kind == ExprKind::kFilter && !soft_ && FindFilter(expr->name) == nullptr) {
      FailAssertion("No filter named '" + expr->name + "'.", expr->line);
    }
    if (expr->kind == ExprKind::kTest && !soft_ && FindTest(expr->name) == nullptr) {
      FailAssertion("No test named '" + expr->name + "'.", expr->line);
    }
    for (const ExprPtr& operand : expr->operands) Resolve(operand, symbols);
    for (const auto& [name, value] : expr->keywords) Resolve(value, symbols);
    Resolve(expr->star_args, symbols);
    Resolve(expr->star_kwargs, symbols);
  }
  void Resolve(const std::vector<ExprPtr>& exprs, const Symbols& symbols) {
    for (const ExprPtr& expr : exprs) Resolve(expr, symbols);
  }

  void ResolveTarget(Expr& target, const Symbols& symbols) {
    if (target.kind == ExprKind::kName || target.kind == ExprKind::kNamespaceRef) {
      target.variable = *symbols.Find(target.name);
    }
    for (const ExprPtr& item : target.operands) ResolveTarget(*item, symbols);
  }

  void Resolve(Body& body, const Symbols& symbols) {
    for (StmtPtr& stmt : body) Resolve(*stmt, symbols);
  }

  // A scope without variables of its own to begin with.
  void ResolveInner(Body& body, Scope& scope, const Symbols& symbols, bool in_loop) {
    Symbols inner(&symbols, &scope);
    Collector(inner).Visit(body);
    inner.Finish();
    const Soft soft(*this, false);
    const Loop loop(*this, in_loop);
    Resolve(body, inner);
  }

  void Resolve(Stmt& stmt, const Symbols& symbols) {
    switch (stmt.kind) {
      case StmtKind::kOutput:
      case StmtKind::kLoad:
        Resolve(stmt.exprs, symbols);
        return;
      case StmtKind::kIf: {
        const Soft soft(*this, true);
        for (IfBranch& branch : stmt.branches) {
          Resolve(branch.condition, symbols);
          Resolve(branch.body, symbols);
        }
        return;
      }
      case StmtKind::kFor:
        ResolveFor(stmt, symbols);
        return;
      case StmtKind::kMacro:
        stmt.variable = *symbols.Find(stmt.macro->name);
        ResolveMacro(*stmt.macro, symbols);
        return;
      case StmtKind::kCallBlock:
        ResolveMacro(*stmt.macro, symbols);
        Resolve(stmt.exprs, symbols);
        return;
      case StmtKind::kGeneration:
        ResolveInner(stmt.body, stmt.scope, symbols, false);
        return;
      case StmtKind::kFilterBlock: {
        ResolveInner(stmt.body, stmt.scope, symbols, in_loop_);
        Resolve(stmt.exprs, symbols);
        return;
      }
      case StmtKind::kSet:
        Resolve(stmt.exprs, symbols);
        ResolveTarget(*stmt.targets[0], symbols);
        return;
      case StmtKind::kSetBlock:
        ResolveInner(stmt.body, stmt.scope, symbols, in_loop_);
        Resolve(stmt.exprs, symbols);
        ResolveTarget(*stmt.targets[0], symbols);
        return;
      case StmtKind::kWith:
        ResolveWith(stmt, symbols);
        return;
      case StmtKind::kBlock:
        if (!blocks_.insert(stmt.name).second) {
          FailAssertion("block '" + stmt.name + "' defined twice", stmt.line);
        }
        // Blocks are functions of the template: they see its variables and no others.
        ResolveInner(stmt.body, stmt.scope, *root_, false);
        return;
      case StmtKind::kAutoescape:
        Resolve(stmt.exprs, symbols);
        ResolveInner(stmt.body, stmt.scope, symbols, in_loop_);
        return;
      case StmtKind::kBreak:
      case StmtKind::kContinue:
        if (!in_loop_) {
          Raise("SyntaxError", stmt.kind == StmtKind::kBreak ? "'break' outside loop"
                                                             : "'continue' not properly in loop");
        }
        return;
    }
  }

  void ResolveFor(Stmt& stmt, const Symbols& symbols) {
    if (AssignsLoop(*stmt.targets[0])) {
      FailAssertion("Can't assign to special loop variable in for-loop target",
                    stmt.targets[0]->line);
    }
    Resolve(stmt.exprs[0], symbols);
    if (stmt.exprs[1] != nullptr) {
      Symbols test(&symbols, &stmt.test_scope);
      Collector collector(test);
      // Stands where the body has its `loop`, so that the targets have the same slots in both; no
      // name finds it.
      test.Parameter("");
      collector.Target(*stmt.targets[0], true);
      collector.Visit(stmt.exprs[1]);
      test.Finish();
      const Soft soft(*this, false);
      Resolve(stmt.exprs[1], test);
    }
    Symbols inner(&symbols, &stmt.scope);
    Collector collector(inner);
    stmt.loop_slot = inner.Parameter("loop");
    collector.Target(*stmt.targets[0], true);
    collector.Visit(stmt.body);
    inner.Finish();
    {
      const Soft soft(*this, false);
      const Loop loop(*this, true);
      ResolveTarget(*stmt.targets[0], inner);
      Resolve(stmt.body, inner);
    }
    ResolveInner(stmt.alternative, stmt.other_scope, symbols, in_loop_ && !stmt.recursive);
  }

  static bool AssignsLoop(const Expr& target) {
    return (target.kind == ExprKind::kName && target.name == "loop") ||
           std::any_of(target.operands.begin(), target.operands.end(),
                       [](const ExprPtr& item) { return AssignsLoop(*item); });
  }

  void ResolveWith(Stmt& stmt, const Symbols& symbols) {
    Resolve(stmt.exprs, symbols);
    Symbols inner(&symbols, &stmt.scope);
    Collector collector(inner);
    for (const ExprPtr& target : stmt.targets) collector.Target(*target, true);
    collector.Visit(stmt.body);
    inner.Finish();
    const Soft soft(*this, false);
    for (const ExprPtr& target : stmt.targets) ResolveTarget(*target, inner);
    Resolve(stmt.body, inner);
  }

  void ResolveMacro(MacroDefinition& macro, const Symbols& symbols) {
    Symbols inner(&symbols, &macro.scope);
    for (const std::string& parameter : macro.parameters) {
      macro.slots.push_back(inner.Parameter(parameter));
      if (parameter == "caller") macro.explicit_caller = true;
    }
    const auto special = [&](const char* name) {
      const bool used = Mentions(macro.body, name) || Mentions(macro.defaults, name);
      const bool parameter = std::find(macro.parameters.begin(), macro.parameters.end(), name) !=
                             macro.parameters.end();
      return used && !parameter ? inner.Parameter(name) : -1;
    };
    macro.caller_slot = special("caller");
    macro.kwargs_slot = special("kwargs");
    macro.varargs_slot = special("varargs");
    if (macro.explicit_caller) {
      const auto index = static_cast<size_t>(
          std::find(macro.parameters.begin(), macro.parameters.end(), "caller") -
          macro.parameters.begin());
      if (index + macro.defaults.size() < macro.parameters.size()) {
        FailAssertion(
            "When defining macros or call blocks the special \"caller\" argument must be omitted "
            "or "
            "be given a default.",
            macro.line);
      }
    }
    Collector collector(inner);
    collector.Visit(macro.defaults);
    collector.Visit(macro.body);
    inner.Finish();
    const Soft soft(*this, false);
    const Loop loop(*this, false);
    Resolve(macro.defaults, inner);
    Resolve(macro.body, inner);
  }

  bool soft_ = false;
  bool in_loop_ = false;
  const Symbols* root_ = nullptr;
  std::set<std::string> blocks_;
};

}  // namespace

void ResolveTemplate(Template& tree) { Resolver().Run(tree); }

}  // namespace moewe::text::jinja
