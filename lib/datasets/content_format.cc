#include "datasets/content_format.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/run.h"

namespace kvcal {
namespace {

using jinja::Expression;
using jinja::ExpressionKind;
using jinja::Statement;
using jinja::StatementKind;
using Names = std::set<std::string, std::less<>>;

/// Whether the expression is this text itself.
bool is_text(const Expression* expression, std::string_view text) {
  if (!expression || expression->kind != ExpressionKind::kConstant ||
      !expression->value.is_string())
    return false;
  jinja::Run run(TemplateLimits{});  // which counts what it reads
  return run.text_of(expression->value) == text;
}

/// A variable's name, or "namespace.attribute"; empty for other expressions.
std::string name_of(const Expression* expression) {
  if (!expression) return {};
  if (expression->kind == ExpressionKind::kName) return std::string(expression->text);
  if (expression->kind == ExpressionKind::kAttributeTarget)
    return std::string(expression->text) + "." + std::string(expression->attribute);
  if (expression->kind != ExpressionKind::kAttribute) return {};
  std::string owner = name_of(expression->items.at(0));
  return owner.empty() ? owner : owner + "." + std::string(expression->text);
}

/// What filters, tests and slices are applied to.
const Expression* source_of(const Expression* expression) {
  while (expression) {
    const bool is_slice = expression->kind == ExpressionKind::kItem && expression->items.at(1) &&
                          expression->items[1]->kind == ExpressionKind::kSlice;
    if (!is_slice && expression->kind != ExpressionKind::kFilter &&
        expression->kind != ExpressionKind::kTest)
      break;
    expression = expression->items.at(0);
  }
  return expression;
}

/// The variable whose "content" an expression reads; empty: it reads none.
std::string content_owner(const Expression* expression) {
  const Expression* member = source_of(expression);
  if (!member || member->items.empty()) return {};
  const bool is_content =
      member->kind == ExpressionKind::kAttribute
          ? member->text == "content"
          : member->kind == ExpressionKind::kItem && is_text(member->items.at(1), "content");
  return is_content ? name_of(member->items[0]) : std::string();
}

/// Names that `set` gives the values of variables, by these: targets, attributes of namespaces,
/// and those that `namespace(rest=messages)` makes.
std::multimap<std::string, std::string, std::less<>> aliases_of(const jinja::SyntaxTree& tree) {
  std::multimap<std::string, std::string, std::less<>> aliases;
  const auto add = [&](const Expression* value, std::string alias) {
    if (std::string name = name_of(source_of(value)); !name.empty())
      aliases.emplace(std::move(name), std::move(alias));
  };
  for (const auto& statement : tree.statements) {
    if (statement->kind != StatementKind::kSet) continue;
    const std::string target = name_of(statement->target);
    const Expression* value = statement->value;
    if (target.empty() || !value) continue;
    add(value, target);
    if (value->kind == ExpressionKind::kCall && name_of(value->items.at(0)) == "namespace")
      for (const auto& [key, given] : value->call.named)
        add(given, target + "." + std::string(key));
  }
  return aliases;
}

/// "messages" and the names that are set to it or to a part of it.
Names names_of_messages(const jinja::SyntaxTree& tree) {
  const auto aliases = aliases_of(tree);
  Names names{"messages"};
  std::vector<std::string> left{"messages"};
  while (!left.empty()) {
    const auto [first, last] = aliases.equal_range(left.back());
    left.pop_back();
    for (auto alias = first; alias != last; ++alias)
      if (names.insert(alias->second).second) left.push_back(alias->second);
  }
  return names;
}

bool is_loop(const Statement& statement) {
  return statement.kind == StatementKind::kFor && statement.target->kind == ExpressionKind::kName;
}

template <class Visit>
void for_each_loop_in(const jinja::Block& block, const Visit& visit) {
  for (const Statement* statement : block) {
    if (is_loop(*statement)) visit(*statement);
    // The body of a macro in a macro is visited as that one's.
    if (statement->kind == StatementKind::kMacro) continue;
    for_each_loop_in(statement->body, visit);
    for_each_loop_in(statement->otherwise, visit);
    for (const jinja::Branch& branch : statement->branches) for_each_loop_in(branch.body, visit);
  }
}

/// The parameters of macros that some call gives a message's content, by the macros' names.
class ContentParameters {
 public:
  ContentParameters(const jinja::SyntaxTree& tree, const Names& messages) : messages_(messages) {
    for (const auto& expression : tree.expressions)
      if (expression->kind == ExpressionKind::kCall)
        if (std::string callee = name_of(expression->items.at(0)); !callee.empty())
          calls_[std::move(callee)].push_back(&expression->call);
  }

  Names of(const Statement& macro) const {
    Names names;
    const auto found = calls_.find(macro.text);
    if (found == calls_.end()) return names;
    for (const jinja::CallSyntax* call : found->second) {
      for (size_t i = 0; i < std::min(call->positional.size(), macro.parameters.size()); ++i)
        if (is_content(call->positional[i])) names.emplace(macro.parameters[i].text);
      for (const auto& [key, value] : call->named)
        if (is_content(value)) names.emplace(key);
    }
    return names;
  }

  bool is_content(const Expression* expression) const {
    return messages_.contains(content_owner(expression));
  }

 private:
  const Names& messages_;
  std::map<std::string, std::vector<const jinja::CallSyntax*>, std::less<>> calls_;
};

}  // namespace

ContentFormat content_format_of(const jinja::SyntaxTree& tree) {
  const Names lists = names_of_messages(tree);
  Names messages;
  for (const auto& loop : tree.statements)
    if (is_loop(*loop) && lists.contains(name_of(source_of(loop->value))))
      messages.emplace(loop->target->text);
  const ContentParameters parameters(tree, messages);
  bool loops = false;
  std::set<const Statement*> in_macros;
  for (const auto& macro : tree.statements) {
    if (macro->kind != StatementKind::kMacro) continue;
    const Names own = parameters.of(*macro);
    for_each_loop_in(macro->body, [&](const Statement& loop) {
      in_macros.insert(&loop);
      loops = loops || own.contains(name_of(loop.value));
    });
  }
  // Outside of macros a variable of this name holds what its name says.
  for (const auto& loop : tree.statements)
    if (is_loop(*loop))
      loops = loops || parameters.is_content(loop->value) ||
              (name_of(loop->value) == "content" && !in_macros.contains(loop.get()));
  return loops ? ContentFormat::kParts : ContentFormat::kString;
}

std::set<std::string, std::less<>> keys_named_in(const jinja::SyntaxTree& tree) {
  constexpr size_t kLongestKey = 100;
  jinja::Run run(TemplateLimits{});
  Names keys;
  for (const auto& expression : tree.expressions) {
    std::string_view key;
    if (expression->kind == ExpressionKind::kAttribute) key = expression->text;
    if (expression->kind == ExpressionKind::kConstant && expression->value.is_string())
      key = run.text_of(expression->value);
    if (!key.empty() && key.size() <= kLongestKey) keys.emplace(key);
  }
  return keys;
}

}  // namespace kvcal
