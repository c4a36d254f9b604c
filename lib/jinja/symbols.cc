#include "jinja/symbols.h"

namespace kvcal::jinja {

std::optional<Variable> Symbols::find(std::string_view name) const {
  for (const Symbols* scope = this; scope != nullptr; scope = scope->parent_)
    if (const auto found = scope->variables_.find(name); found != scope->variables_.end())
      return found->second;
  return std::nullopt;
}

void Symbols::define(std::string_view name, Load::From from, Variable outer) {
  const Variable variable{function_, function_->index_of(level_, name)};
  variables_[name] = variable;
  entries_[variable] = {from, name, outer};
}

void Symbols::define_from_outside(std::string_view name, Load::From otherwise) {
  const std::optional<Variable> outer = parent_ != nullptr ? parent_->find(name) : std::nullopt;
  define(name, outer ? Load::From::kOuter : otherwise, outer.value_or(Variable{}));
}

void Symbols::load(std::string_view name) {
  if (!find(name)) define(name, Load::From::kContext);
}

void Symbols::store(std::string_view name) {
  stores_.insert(name);
  if (!variables_.contains(name)) define_from_outside(name, Load::From::kNothing);
}

void Symbols::declare_parameter(std::string_view name) {
  stores_.insert(name);
  define(name, Load::From::kParameter);
}

void Symbols::declare(const Expression* expression) {
  if (expression == nullptr) return;
  if (expression->kind == ExpressionKind::kName ||
      expression->kind == ExpressionKind::kAttributeTarget)
    load(expression->text);
  for (const Expression* item : expression->items) declare(item);
  for_each_argument(expression->call, [&](const Expression* argument) { declare(argument); });
}

void Symbols::declare_target(const Expression* target, bool is_parameter) {
  for_each_target(target, [&](const Expression* name) {
    if (name->kind == ExpressionKind::kAttributeTarget)
      load(name->text);
    else
      is_parameter ? declare_parameter(name->text) : store(name->text);
  });
}

void Symbols::declare(const Block& block) {
  for (const Statement* statement : block) declare(statement);
}

void Symbols::declare(const Statement* statement) {
  switch (statement->kind) {
    case StatementKind::kIf:
      return declare_if(statement);
    case StatementKind::kSet:
      declare(statement->value);
      return declare_target(statement->target, false);
    case StatementKind::kSetBlock:
      return declare_target(statement->target, false);
    case StatementKind::kWith:
      for (const auto& [target, value] : statement->assignments) declare(value);
      return;
    case StatementKind::kMacro:
      return store(statement->text);
    default:
      return declare(statement->value);  // what else has a body is a scope of its own
  }
}

void Symbols::declare_if(const Statement* statement) {
  function_->charge(2 * (2 + statement->branches.size()) * entries_.size());
  declare(statement->branches[0].condition);
  std::vector<Symbols> branches(3, *this);
  branches[0].declare(statement->branches[0].body);
  for (size_t i = 1; i < statement->branches.size(); ++i) {
    Symbols& alternative = branches[1];
    alternative.declare(statement->branches[i].condition);
    Symbols body = alternative;
    body.declare(statement->branches[i].body);
    alternative.merge({body});
  }
  branches[2].declare(statement->body);
  merge(branches);
}

void Symbols::merge(const std::vector<Symbols>& branches) {
  std::set<std::string_view> stores;
  for (const Symbols& branch : branches)
    for (const std::string_view name : branch.stores_)
      if (!stores_.contains(name)) stores.insert(name);
  for (const Symbols& branch : branches) {
    for (const auto& [name, variable] : branch.variables_) variables_[name] = variable;
    for (const auto& [variable, entry] : branch.entries_) entries_[variable] = entry;
    stores_.insert(branch.stores_.begin(), branch.stores_.end());
  }
  // A name that only some branches assign keeps its outer value where they were not taken.
  for (const std::string_view name : stores) define_from_outside(name, Load::From::kContext);
}

std::vector<Load> Symbols::loads() const {
  std::vector<Load> result;
  for (const auto& [variable, entry] : entries_) {
    if (entry.from == Load::From::kParameter) continue;
    Load load{.from = entry.from, .index = variable.index, .name = entry.name};
    if (entry.from == Load::From::kOuter)
      load.outer = {function_->depth - entry.outer.function->depth, entry.outer.index};
    result.push_back(load);
  }
  return result;
}

namespace {

/// Source: Jinja2 3.1, compiler.py, UndeclaredNameVisitor.
class UndeclaredNames {
 public:
  UndeclaredNames(const FunctionScope& function, std::initializer_list<std::string_view> names)
      : function_(function), wanted_(names) {}
  std::set<std::string_view> take() { return std::move(found_); }

  void visit(const Block& block) {
    for (const Statement* statement : block) visit(statement);
  }

 private:
  void visit(const Expression* expression) {
    if (expression == nullptr) return;
    function_.charge(1);
    if (expression->kind == ExpressionKind::kName) {
      if (wanted_.contains(expression->text)) found_.insert(expression->text);
    }
    for (const Expression* item : expression->items) visit(item);
    for_each_argument(expression->call, [&](const Expression* argument) { visit(argument); });
  }
  void assign(const Expression* target) {
    for_each_target(target, [&](const Expression* name) {
      if (name->kind == ExpressionKind::kName) wanted_.erase(name->text);
    });
  }
  void visit(const Statement* statement) {
    function_.charge(1);
    assign(statement->target);
    for (const auto& [target, value] : statement->assignments) assign(target);
    for (const auto& [target, value] : statement->assignments) visit(value);
    if (statement->kind == StatementKind::kFilterBlock) visit(statement->body);
    visit(statement->value);
    for (const Parameter& parameter : statement->parameters) wanted_.erase(parameter.name);
    for (const Parameter& parameter : statement->parameters) visit(parameter.fallback);
    for (const Branch& branch : statement->branches) {
      visit(branch.condition);
      visit(branch.body);
    }
    if (statement->kind != StatementKind::kFilterBlock) visit(statement->body);
    visit(statement->otherwise);
    visit(statement->condition);
  }

  const FunctionScope& function_;
  std::set<std::string_view> wanted_, found_;
};

}  // namespace

std::set<std::string_view> undeclared(const FunctionScope& function, const Block& block,
                                      std::initializer_list<std::string_view> names) {
  UndeclaredNames visitor(function, names);
  visitor.visit(block);
  return visitor.take();
}

}  // namespace kvcal::jinja
