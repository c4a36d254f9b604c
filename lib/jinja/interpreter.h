#pragma once

#include <ctime>
#include <functional>
#include <string>
#include <string_view>

#include "jinja/objects.h"
#include "jinja/syntax.h"

namespace kvcal::jinja {

/// Runs a parsed template once. Everything it touches outlives it: the tree, the Run, the
/// variables.
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
  /// The text of a function's body with its arguments in place (missing ones get their defaults).
  Value run_function(const Statement& definition, Activation* activation);

 private:
  enum class Flow { kNext, kBreak, kContinue };

  Flow execute(const Block& block);
  Flow execute(const Statement& statement);
  Flow execute_if(const Statement& statement);
  Flow execute_for(const Statement& statement);
  Flow execute_with(const Statement& statement);
  Flow execute_set_block(const Statement& statement);
  Flow execute_filter_block(const Statement& statement);
  void execute_set(const Statement& statement);
  void execute_call_block(const Statement& statement);
  Value make_macro(const Statement& definition);
  Value loop_source(const Statement& statement);
  /// Runs body with its output going to text.
  template <class Body>
  Flow captured(Text& text, Body&& body);

  Value evaluate(const Expression& expression);
  Value evaluate_name(const Expression& expression);
  Value evaluate_dict(const Expression& expression);
  Value evaluate_compare(const Expression& expression);
  Value evaluate_concat(const Expression& expression);
  Value evaluate_conditional(const Expression& expression);
  Value evaluate_item(const Expression& expression);
  Value evaluate_call(const Expression& expression, const Value& caller = {});
  Value evaluate_filter(const Expression& expression, const Value& block_text = {});
  Values evaluate_items(const Expression& expression);
  CallArguments evaluate_arguments(const CallSyntax& syntax);

  void enter(const std::vector<Load>& loads);
  Value& variable(const Slot& slot);
  /// Assigns value to target, whose names take the slots from next on.
  void assign(const Expression& target, const Value& value, const std::vector<Slot>& slots,
              size_t& next);
  void check_namespaces(const Expression& target);
  Value look_up(std::string_view name) const;

  const SyntaxTree& tree_;
  Run& run_;
  const Dict& variables_;
  Dict globals_;
  std::function<std::tm()> clock_;
  Text output_;
  Text* out_ = &output_;
  Activation* activation_ = nullptr;
  int line_ = 1;
};

}  // namespace kvcal::jinja
