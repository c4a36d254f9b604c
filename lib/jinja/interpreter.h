#pragma once

#include <ctime>
#include <functional>
#include <string>
#include <string_view>

#include "jinja/syntax.h"

namespace kvcal::jinja {

/// Runs a parsed template once. Everything it touches outlives it: the tree, the Run, the
/// variables.
///
/// A scope is the template itself, a macro, call block, loop, with, set or filter block. A name is
/// assigned in the innermost scope, and read from the innermost one that has a value for it. Loops
/// begin each iteration without values (Block::late_names are the exception). Source: Jinja2 3.1,
/// idtracking.py and compiler.py.
class Interpreter {
 public:
  /// variables: what the template's caller passed. clock: local time, for strftime_now.
  Interpreter(const SyntaxTree& tree, Run& run, const Dict& variables,
              std::function<std::tm()> clock);

  /// The template's text. Throws Error without a place: line() tells where it happened.
  std::string render();
  int line() const { return line_; }

  Run& run() { return run_; }
  std::tm local_time() const { return clock_(); }

  /// callee(arguments)
  Value call(const Value& callee, const CallArguments& arguments);
  /// input | name(arguments). Throws Error for an unknown filter.
  Value apply_filter(std::string_view name, const Value& input, const CallArguments& arguments);
  /// input is name(arguments)
  bool apply_test(std::string_view name, const Value& input, const CallArguments& arguments);

 private:
  enum class Flow { kNext, kBreak, kContinue };

  Flow execute(const Block& block);
  Flow execute(const Statement& statement);
  /// Runs block in the scope that was made for it.
  Flow execute_scope(const Block& block);
  /// Runs block in a scope of its own, with its output going to text where there is one.
  Flow execute_inside(const Block& block, Text* text = nullptr);
  Flow execute_if(const Statement& statement);
  Flow execute_for(const Statement& statement);
  Flow execute_with(const Statement& statement);
  Flow execute_set_block(const Statement& statement);
  Flow execute_filter_block(const Statement& statement);
  void execute_call_block(const Statement& statement);
  Value make_macro(const Statement& definition);
  /// The text of a call: arguments bound by Jinja2's rules for macros, not Python's for functions.
  /// Source: Jinja2 3.1, runtime.py, Macro.__call__.
  Value call_macro(const Macro& macro, const CallArguments& call);
  Value loop_source(const Statement& statement);

  Value evaluate(const Expression& expression);
  Value evaluate_dict(const Expression& expression);
  Value evaluate_compare(const Expression& expression);
  Value evaluate_concat(const Expression& expression);
  Value evaluate_conditional(const Expression& expression);
  Value evaluate_item(const Expression& expression);
  Value evaluate_call(const Expression& expression, const Value& caller = {});
  Value evaluate_filter(const Expression& expression, const Value& block_text = {});
  Values evaluate_items(const Expression& expression);
  CallArguments evaluate_arguments(const CallSyntax& syntax);

  /// The variable of that name in scope itself, or null.
  Value* find(Scope& scope, int name);
  /// The value of a variable, missing where there is none.
  Value look_up(int name);
  void assign(Scope& scope, int name, const Value& value);
  /// Assigns value to a target of an assignment.
  void assign(const Expression& target, const Value& value);
  void check_namespaces(const Expression& target);

  const SyntaxTree& tree_;
  Run& run_;
  const Dict& variables_;
  std::function<std::tm()> clock_;
  Text output_;
  Text* out_ = &output_;
  Scope* scope_ = nullptr;
  int line_ = 1;
};

}  // namespace kvcal::jinja
