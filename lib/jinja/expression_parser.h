#pragma once

#include <string_view>
#include <vector>

#include "jinja/parser_base.h"

namespace kvcal::jinja {

/// The grammar of expressions, rule by rule as in Jinja2 3.1, parser.py.
class ExpressionParser : public ParserBase {
 public:
  using ParserBase::ParserBase;

 protected:
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
  /// A target that is one name.
  std::string_view parse_name_target();

 private:
  Expression* parse_conditional();
  Expression* parse_or();
  Expression* parse_and();
  Expression* parse_not();
  Expression* parse_compare();
  Expression* parse_sum();
  Expression* parse_concat();
  Expression* parse_product();
  Expression* parse_power();
  Expression* parse_unary(bool has_filters = true);
  Expression* parse_primary(bool may_be_attribute = false);
  Expression* parse_name(bool may_be_attribute);
  Expression* parse_list();
  Expression* parse_dict();
  Expression* parse_postfix(Expression* operand);
  Expression* parse_filters_and_tests(Expression* operand);
  Expression* parse_subscript(Expression* operand);
  Expression* parse_subscribed();
  Expression* parse_call(Expression* callee);
  Expression* parse_test(Expression* operand);
  void parse_arguments(Expression* owner);
  std::string_view parse_dotted_name();
  bool is_tuple_end() const;
  void require_assignable(const Expression* target) const;
  bool starts_test_argument() const;
};

}  // namespace kvcal::jinja
