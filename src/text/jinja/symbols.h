// The names of a template's scopes: which slot each of them has, and what it is when its scope is
// entered.
#ifndef MOEWE_TEXT_JINJA_SYMBOLS_H_
#define MOEWE_TEXT_JINJA_SYMBOLS_H_

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"

namespace moewe::text::jinja {

// The names of one scope. The branches of an `if` are layers over what was there before; slots are
// the scope's, so a name has the same one in all branches.
class Symbols {
 public:
  Symbols(const Symbols* parent, Scope* scope)
      : parent_(parent), scope_(scope), slot_of_(std::make_shared<SlotMap>()) {}

  // A branch: what it adds stays apart until Merge.
  Symbols Branch() const { return Symbols(*this, this); }
  // After an `if`: what only some branches store has its outer value in the others.
  void Merge(const std::vector<Symbols>& branches);

  // Here or in an enclosing scope.
  std::optional<Variable> Find(const std::string& name) const;
  void Read(const std::string& name);
  void Write(const std::string& name);
  int Parameter(const std::string& name);  // its slot

  // Tells the scope what its slots are when it is entered.
  void Finish();

 private:
  using SlotMap = std::unordered_map<std::string, int>;

  Symbols(const Symbols& scope, const Symbols* base)
      : parent_(scope.parent_), base_(base), scope_(scope.scope_), slot_of_(scope.slot_of_) {}

  std::optional<int> Local(const std::string& name) const;
  bool IsWritten(const std::string& name) const;
  std::optional<Variable> FindOutside(const std::string& name) const;
  int Define(const std::string& name, SlotInit init);

  const Symbols* parent_;          // the enclosing scope
  const Symbols* base_ = nullptr;  // of a branch: the scope as it was before
  Scope* scope_;
  std::shared_ptr<SlotMap> slot_of_;
  std::unordered_map<std::string, int> names_;
  std::map<int, SlotInit> inits_;
  std::set<std::string> written_;
};

// Collects the names of one scope; inner scopes are not entered, except for what they need from
// here.
class Collector {
 public:
  explicit Collector(Symbols& symbols) : symbols_(&symbols) {}

  void Visit(const ExprPtr& expr);
  void Visit(const std::vector<ExprPtr>& exprs);
  void Visit(const Body& body);
  void Visit(const Stmt& stmt);
  void Target(const Expr& target, bool parameter);

 private:
  void VisitIf(const Stmt& stmt);

  // Collects into `layer` for a while.
  template <typename Work>
  void In(Symbols& layer, Work work) {
    Symbols* const outer = std::exchange(symbols_, &layer);
    work();
    symbols_ = outer;
  }

  Symbols* symbols_;
};

}  // namespace moewe::text::jinja

#endif  // MOEWE_TEXT_JINJA_SYMBOLS_H_
