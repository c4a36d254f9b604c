#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/value_operations.h"

namespace kvcal::jinja {

enum class TokenType : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kEnd,
  kString,
  kName,
  kInteger,
  kFloat,
  kOperator,
};

/// text is the name, the operator, the literal's value or the template's data; it belongs to
/// TokenList.
struct Token {
  TokenType type = TokenType::kEnd;
  int line = 1;
  std::string_view text;

  bool is(TokenType wanted) const { return type == wanted; }
  bool is_operator(std::string_view symbol) const {
    return type == TokenType::kOperator && text == symbol;
  }
  bool is_name(std::string_view name) const { return type == TokenType::kName && text == name; }
};

/// Prints a token as messages name it.
std::string described(const Token& token);

/// A template cut into tokens. Comments, raw markers and whitespace inside tags are gone;
/// whitespace control (-, +, trim_blocks, lstrip_blocks, the last newline) has been applied. Ends
/// with a kEnd token.
struct TokenList {
  std::deque<std::string> texts;  ///< the source with newlines made \n, then unescaped literals
  std::vector<Token> tokens;
};

/// Throws Error with the line. Source of the rules: Jinja2 3.1, lexer.py.
TokenList tokenize(std::string_view source);

struct Expression;

/// The arguments in a call's parentheses.
struct CallSyntax {
  std::vector<Expression*> positional;
  std::vector<std::pair<std::string_view, Expression*>> named;
  Expression* star = nullptr;         ///< *items
  Expression* double_star = nullptr;  ///< **mapping
};

enum class ExpressionKind : uint8_t {
  kConstant,         ///< value
  kName,             ///< text; name
  kAttributeTarget,  ///< text of a namespace, name; attribute: only as a target of set
  kTuple,
  kList,     ///< items
  kDict,     ///< items: key, value, key, value …
  kUnary,    ///< operators[0], + or -, items[0]
  kBinary,   ///< items[0] operators[0] items[1]
  kCompare,  ///< items[0] operators[0] items[1] operators[1] items[2] …
  kAnd,
  kOr,
  kNot,
  kConcat,       ///< items ~ items …
  kConditional,  ///< items: condition, then, else (may be null)
  kAttribute,    ///< items[0].text
  kItem,         ///< items[0][items[1]]
  kSlice,        ///< items: start, stop, step, each may be null; only as items[1] of kItem
  kCall,         ///< items[0](call)
  kFilter,       ///< items[0] | text(call); items[0] is null in a filter block
  kTest,         ///< items[0] is text(call)
};

struct Expression {
  ExpressionKind kind = ExpressionKind::kConstant;
  int line = 0;
  int depth = 1;  ///< of the tree below
  int name = 0;   ///< of a variable, in SyntaxTree::names
  std::string_view text, attribute;
  Value value;
  std::vector<Operator> operators;
  std::vector<Expression*> items;
  CallSyntax call;
};

/// Visits the names and namespace attributes of a target of an assignment, from left to right.
template <class Target, class Visit>
void for_each_target(Target* target, const Visit& visit) {
  if (target == nullptr) return;
  if (target->kind != ExpressionKind::kTuple) return visit(target);
  for (Expression* item : target->items) for_each_target<Target>(item, visit);
}

enum class StatementKind : uint8_t {
  kText,         ///< text
  kPrint,        ///< value
  kIf,           ///< branches; body is the else
  kFor,          ///< target, value, condition, body, otherwise
  kSet,          ///< target, value
  kSetBlock,     ///< target, value (a filter chain or null), body
  kWith,         ///< assignments, body
  kMacro,        ///< text, parameters, body
  kCallBlock,    ///< value (a call), parameters, body
  kFilterBlock,  ///< value (a filter chain), body
  kBreak,
  kContinue,
};

struct Statement;
struct Block : std::vector<Statement*> {
  /// Names that the scope sets before it reads them itself, and of which no scope around it speaks:
  /// where a scope inside reads one sooner, it finds no value, also none of the caller's.
  std::vector<std::pair<int, std::string_view>> late_names;
};

struct Branch {
  Expression* condition = nullptr;
  Block body;
};

struct Parameter {
  std::string_view text = {};
  int name = 0;
  Expression* fallback = nullptr;
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  int line = 0;
  int name = 0;  ///< of a macro, in SyntaxTree::names
  std::string_view text;
  Expression* target = nullptr;
  Expression* value = nullptr;
  Expression* condition = nullptr;
  Block body, otherwise;
  std::vector<Branch> branches;
  std::vector<std::pair<Expression*, Expression*>> assignments;
  std::vector<Parameter> parameters;
  /// Whether the body of a macro or call block reads these names.
  bool reads_caller = false, reads_kwargs = false, reads_varargs = false;
};

/// Names that mean something to the language, where SyntaxTree::names begins.
enum Name : int { kLoopName, kCallerName, kKwargsName, kVarargsName };

/// A parsed template. Owns every node; nodes point at each other freely.
struct SyntaxTree {
  TokenList tokens;
  std::deque<std::string> texts;
  std::vector<std::unique_ptr<Expression>> expressions;
  std::vector<std::unique_ptr<Statement>> statements;
  Block body;
  /// Names of variables, numbered in the order in which they come.
  std::map<std::string_view, int> names{{"loop", kLoopName},
                                        {"caller", kCallerName},
                                        {"kwargs", kKwargsName},
                                        {"varargs", kVarargsName}};
};

/// Parses a template (valid UTF-8). Throws Error with the line and what was found, also for what
/// Jinja2 refuses when it compiles a template: break outside of loops, unknown filters and tests
/// outside of conditions, assignment to `loop`. Refuses by name what Jinja2 has and chat templates
/// do not use (include, import, extends, block, autoescape, recursive loops).
SyntaxTree parse(std::string_view source);

}  // namespace kvcal::jinja
