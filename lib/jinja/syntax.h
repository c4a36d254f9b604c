#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/lexer.h"
#include "jinja/operators.h"

namespace kvcal::jinja {

/// The slot of a variable: functions are the template itself, macros and call blocks, each with its
/// own slots. up counts how many functions out.
struct Slot {
  int up = 0;
  int index = 0;
};

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
  kName,             ///< text; slot
  kAttributeTarget,  ///< text of a namespace; attribute: only as a target of set
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
  std::string_view text, attribute;
  Value value;
  std::vector<Operator> operators;
  std::vector<Expression*> items;
  CallSyntax call;
  Slot slot;
};

/// Visits the names and namespace attributes of a target of an assignment, from left to right.
template <class Target, class Visit>
void for_each_target(Target* target, const Visit& visit) {
  if (target == nullptr) return;
  if (target->kind != ExpressionKind::kTuple) return visit(target);
  for (Expression* item : target->items) for_each_target<Target>(item, visit);
}

/// The first value of a scope's variable: where it comes from.
struct Load {
  enum class From { kParameter, kContext, kOuter, kNothing };
  From from = From::kNothing;
  int index = 0;          ///< the slot, in the current function
  std::string_view name;  ///< kContext: which variable
  Slot outer = {};        ///< kOuter: whose value
};

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
using Block = std::vector<Statement*>;

struct Branch {
  Expression* condition = nullptr;
  Block body;
};

struct Parameter {
  std::string_view name = {};
  Expression* fallback = nullptr;
  int line = 0;
  int index = 0;  ///< slot
};

/// A macro's or call block's own function.
struct FunctionFrame {
  int num_slots = 0;
  int caller = -1, kwargs = -1, varargs = -1;  ///< slots, where the body names them
  bool has_caller_parameter = false;
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  int line = 0;
  std::string_view text;
  Expression* target = nullptr;
  Expression* value = nullptr;
  Expression* condition = nullptr;
  Block body, otherwise;
  std::vector<Branch> branches;
  std::vector<std::pair<Expression*, Expression*>> assignments;
  std::vector<Parameter> parameters;

  // Filled by resolve_names.
  std::vector<Load> loads, otherwise_loads, condition_loads;
  std::vector<Slot> target_slots, condition_slots;  ///< of the target's names, from left to right
  int loop_slot = -1;                               ///< of a for whose body names `loop`
  FunctionFrame function;
};

/// A parsed template. Owns every node; nodes point at each other freely.
struct SyntaxTree {
  TokenList tokens;
  std::deque<std::string> texts;
  std::vector<std::unique_ptr<Expression>> expressions;
  std::vector<std::unique_ptr<Statement>> statements;
  Block body;
  std::vector<Load> loads;
  int num_slots = 0;
};

/// Parses a template (valid UTF-8) and resolves its names. Throws Error with the line and what was
/// found. The parser refuses by name what Jinja2 has and chat templates do not use (include,
/// import, extends, block, autoescape, recursive loops).
SyntaxTree parse(std::string_view source);

/// Decides for every name of the tree which variable it means, by Jinja2's rules: a scope is a
/// loop, macro, call block, with, set or filter block; a name that a scope assigns is its own from
/// the scope's start, however late the assignment stands. Also refuses what Jinja2 refuses when it
/// compiles a template: break outside of loops, unknown filters and tests outside of conditions,
/// assignment to `loop`. Throws Error with the line. Source of the rules: Jinja2 3.1, idtracking.py
/// and compiler.py.
void resolve_names(SyntaxTree& tree);

}  // namespace kvcal::jinja
