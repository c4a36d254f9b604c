#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "jinja/syntax.h"

namespace kvcal::jinja {

/// How deep expressions and blocks may nest; published templates stay far below.
inline constexpr int kMaxNesting = 200;
/// How many expressions and statements a template may have, which bounds the memory of its tree.
inline constexpr size_t kMaxNodes = 250'000;

/// The grammar of expressions, rule by rule as in Jinja2 3.1, parser.py, over the token stream.
class ExpressionParser {
 public:
  explicit ExpressionParser(SyntaxTree& tree) : tree_(tree), tokens_(tree.tokens.tokens) {}

 protected:
  /// Counts nesting while it lives.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser& parser) : parser_(parser) {
      if (++parser_.nesting_ > kMaxNesting) {
        --parser_.nesting_;
        parser_.stop("nested deeper than " + std::to_string(kMaxNesting) + " levels");
      }
    }
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    ExpressionParser& parser_;
  };

  const Token& token() const { return tokens_[at_]; }
  const Token& following() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  const Token& take() {
    const Token& taken = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return taken;
  }
  bool skip_operator(std::string_view symbol) {
    const bool is_there = token().is_operator(symbol);
    if (is_there) take();
    return is_there;
  }
  bool skip_name(std::string_view name) {
    const bool is_there = token().is_name(name);
    if (is_there) take();
    return is_there;
  }
  const Token& expect(TokenType type, std::string_view what) {
    if (!token().is(type)) stop("found " + described(token()) + ", expected " + std::string(what));
    return take();
  }
  void expect_operator(std::string_view symbol) {
    if (!skip_operator(symbol))
      stop("found " + described(token()) + ", expected '" + std::string(symbol) + "'");
  }

  /// The number of a variable's name.
  int number_of_name(std::string_view name) {
    return tree_.names.try_emplace(name, static_cast<int>(tree_.names.size())).first->second;
  }
  /// Unknown filters and tests since there were known of them are no error unless they are reached:
  /// they stand in a condition, where a template may ask for what it then uses.
  void forget_unknown(size_t known) { unknown_.resize(std::min(known, unknown_.size())); }
  /// They are an error, whatever stands around: they stand in a scope of their own.
  void require_known(size_t known) {
    if (!error_ && unknown_.size() > known) error_ = unknown_[known];
  }
  size_t num_unknown() const { return unknown_.size(); }
  /// Throws the Error of an unknown filter or test.
  void check_known() {
    require_known(0);
    if (error_) fail(*error_);
  }

  [[noreturn]] void stop(const std::string& what, int line = 0) const {
    fail("line ", line > 0 ? line : token().line, ": ", what);
  }

  Expression* make(ExpressionKind kind, int line, std::vector<Expression*> items = {}) {
    check_nodes();
    tree_.expressions.push_back(std::make_unique<Expression>());
    Expression* expression = tree_.expressions.back().get();
    expression->kind = kind;
    expression->line = line;
    expression->items = std::move(items);
    for (const Expression* item : expression->items) deepen(expression, item);
    return expression;
  }
  void check_nodes() const {
    if (tree_.expressions.size() + tree_.statements.size() >= kMaxNodes)
      stop("more than " + std::to_string(kMaxNodes) + " expressions and statements");
  }
  /// Takes child into parent's depth, which chains like a|b|c build without nesting.
  void deepen(Expression* parent, const Expression* child) const {
    if (child == nullptr) return;
    parent->depth = std::max(parent->depth, child->depth + 1);
    if (parent->depth > kMaxNesting)
      stop("an expression of more than " + std::to_string(kMaxNesting) + " levels", parent->line);
  }

  struct TupleRules {
    bool is_simplified = false;     ///< primaries only: the target of an assignment
    bool has_conditional = true;    ///< whether "a if b" may stand unparenthesised
    bool is_parenthesized = false;  ///< "()" is an empty tuple
    bool may_be_attribute = false;  ///< "namespace.attribute" as a target
  };

  Expression* parse_tuple(const TupleRules& rules);
  Expression* parse_expression(bool has_conditional = true);
  /// Filters after '|'; with is_first the first name stands without its bar.
  Expression* parse_filters(Expression* operand, bool is_first = false);
  /// Parses a target of an assignment.
  Expression* parse_target(bool may_be_attribute);
  /// Takes name, a what, into names, where it must not be yet.
  void add_name(std::set<std::string_view>& names, std::string_view name,
                std::string_view what) const;
  /// A target that is one name.
  std::string_view parse_name_target();

  SyntaxTree& tree_;
  /// The names that a scope reads or sets itself, of them those that it sets first of all, and how
  /// many ifs of it stand around.
  struct ScopeNames {
    ScopeNames* outer = nullptr;
    Block* block = nullptr;
    std::set<int> own = {}, late = {};
    int branches = 0;
  };
  void enter_scope(Block& block) { scope_ = &scopes_.emplace_back(ScopeNames{scope_, &block}); }
  void leave_scope() { scope_ = scope_->outer; }
  void note_own_name(int name, bool is_set) {
    if (scope_->own.insert(name).second && is_set && scope_->branches == 0)
      scope_->late.insert(name);
  }
  /// Writes Block::late_names of all scopes.
  void settle_late_names() const;

  ScopeNames* scope_ = nullptr;
  int num_loops_ = 0;                  ///< around
  int num_breakable_ = 0;              ///< of these, those that a break here may leave
  std::vector<Statement*> functions_;  ///< the macros and call blocks around

 private:
  Expression* parse_conditional();
  Expression* parse_binary(size_t level);
  Expression* parse_operand(size_t level);
  Expression* parse_not();
  Expression* parse_compare();
  Expression* parse_concat();
  Expression* parse_unary(bool has_filters = true);
  Expression* parse_primary(bool may_be_attribute = false);
  Expression* parse_name(bool may_be_attribute);
  /// A list or a dict.
  Expression* parse_list();
  Expression* parse_postfix(Expression* operand);
  Expression* parse_filters_and_tests(Expression* operand);
  Expression* parse_subscript(Expression* operand);
  Expression* parse_subscribed();
  Expression* parse_call(Expression* callee);
  Expression* parse_test(Expression* operand);
  void parse_arguments(Expression* owner);
  void add_unknown(std::string_view what, const Expression* expression);
  std::string_view parse_dotted_name();
  bool is_tuple_end() const;
  void require_assignable(const Expression* target) const;
  bool starts_test_argument() const;

  const std::vector<Token>& tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
  bool is_target_ = false;
  std::deque<ScopeNames> scopes_;
  std::vector<std::string> unknown_;  ///< filters and tests, as messages
  std::optional<std::string> error_;
};

}  // namespace kvcal::jinja
