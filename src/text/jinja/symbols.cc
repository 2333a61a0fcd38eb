#include "text/jinja/symbols.h"

namespace moewe::text::jinja {

using Load = SlotInit::Load;

std::optional<Variable> Symbols::Find(const std::string& name) const {
  int hops = 0;
  for (const Symbols* s = this; s != nullptr; s = s->parent_, ++hops) {
    if (const auto slot = s->Local(name)) return Variable{hops, *slot};
  }
  return std::nullopt;
}

void Symbols::Read(const std::string& name) {
  if (!Find(name)) Define(name, {name, Load::kContext, {}});
}

void Symbols::Write(const std::string& name) {
  written_.insert(name);
  if (Local(name)) return;
  if (const auto outer = FindOutside(name)) {
    Define(name, {name, Load::kAlias, *outer});
  } else {
    Define(name, {name, Load::kUndefined, {}});
  }
}

int Symbols::Parameter(const std::string& name) {
  written_.insert(name);
  return Define(name, {name, Load::kParameter, {}});
}

void Symbols::Merge(const std::vector<Symbols>& branches) {
  std::map<std::string, size_t> counts;
  for (const Symbols& branch : branches) {
    for (const std::string& name : branch.written_) {
      if (!IsWritten(name)) ++counts[name];
    }
  }
  for (const Symbols& branch : branches) {
    names_.insert(branch.names_.begin(), branch.names_.end());
    for (const auto& [slot, init] : branch.inits_) inits_[slot] = init;
    written_.insert(branch.written_.begin(), branch.written_.end());
  }
  for (const auto& [name, count] : counts) {
    if (count == branches.size()) continue;
    SlotInit init{name, Load::kContext, {}};
    if (const auto outer = FindOutside(name)) init = {name, Load::kAlias, *outer};
    inits_[*Local(name)] = init;
  }
}

void Symbols::Finish() {
  for (const auto& [slot, init] : inits_) scope_->slots[static_cast<size_t>(slot)] = init;
}

std::optional<int> Symbols::Local(const std::string& name) const {
  for (const Symbols* layer = this; layer != nullptr; layer = layer->base_) {
    const auto found = layer->names_.find(name);
    if (found != layer->names_.end()) return found->second;
  }
  return std::nullopt;
}

bool Symbols::IsWritten(const std::string& name) const {
  for (const Symbols* layer = this; layer != nullptr; layer = layer->base_) {
    if (layer->written_.contains(name)) return true;
  }
  return false;
}

std::optional<Variable> Symbols::FindOutside(const std::string& name) const {
  return parent_ == nullptr ? std::nullopt : parent_->Find(name);
}

int Symbols::Define(const std::string& name, SlotInit init) {
  auto& slots = scope_->slots;
  const auto [entry, added] = slot_of_->emplace(name, static_cast<int>(slots.size()));
  if (added) slots.push_back(init);
  names_[name] = entry->second;
  inits_[entry->second] = std::move(init);
  return entry->second;
}

void Collector::Visit(const ExprPtr& expr) {
  if (expr == nullptr) return;
  if (expr->kind == ExprKind::kName) symbols_->Read(expr->name);
  for (const ExprPtr& operand : expr->operands) Visit(operand);
  for (const auto& [name, value] : expr->keywords) Visit(value);
  Visit(expr->star_args);
  Visit(expr->star_kwargs);
}

void Collector::Visit(const std::vector<ExprPtr>& exprs) {
  for (const ExprPtr& expr : exprs) Visit(expr);
}

void Collector::Target(const Expr& target, bool parameter) {
  if (target.kind == ExprKind::kName) {
    if (parameter) {
      symbols_->Parameter(target.name);
    } else {
      symbols_->Write(target.name);
    }
  } else if (target.kind == ExprKind::kNamespaceRef) {
    symbols_->Read(target.name);
  }
  for (const ExprPtr& item : target.operands) Target(*item, parameter);
}

void Collector::Visit(const Body& body) {
  for (const StmtPtr& stmt : body) Visit(*stmt);
}

void Collector::Visit(const Stmt& stmt) {
  switch (stmt.kind) {
    case StmtKind::kIf:
      VisitIf(stmt);
      return;
    case StmtKind::kFor:
      Visit(stmt.exprs[0]);
      return;
    case StmtKind::kMacro:
      symbols_->Write(stmt.macro->name);
      return;
    case StmtKind::kSet:
      Visit(stmt.exprs);
      Target(*stmt.targets[0], false);
      return;
    case StmtKind::kSetBlock:
      Target(*stmt.targets[0], false);
      return;
    case StmtKind::kGeneration:
    case StmtKind::kBlock:
    case StmtKind::kBreak:
    case StmtKind::kContinue:
      return;
    case StmtKind::kAutoescape:
      Visit(stmt.exprs);
      return;
    case StmtKind::kOutput:
    case StmtKind::kCallBlock:
    case StmtKind::kFilterBlock:
    case StmtKind::kWith:
    case StmtKind::kLoad:
      Visit(stmt.exprs);
      return;
  }
}

// The first condition is read unconditionally; all `elif`s together are one branch, with branches
// inside.
void Collector::VisitIf(const Stmt& stmt) {
  const std::vector<IfBranch>& branches = stmt.branches;
  Visit(branches[0].condition);
  const bool has_else = branches.back().condition == nullptr;
  const size_t conditions = branches.size() - (has_else ? 1 : 0);
  std::vector<Symbols> results(3, symbols_->Branch());
  In(results[0], [&] { Visit(branches[0].body); });
  In(results[1], [&] {
    for (size_t i = 1; i < conditions; ++i) {
      // An elif by itself: its own test and body, no alternatives.
      Visit(branches[i].condition);
      std::vector<Symbols> inner(2, symbols_->Branch());
      In(inner[0], [&] { Visit(branches[i].body); });
      symbols_->Merge(inner);
    }
  });
  if (has_else) In(results[2], [&] { Visit(branches.back().body); });
  symbols_->Merge(results);
}

}  // namespace moewe::text::jinja
