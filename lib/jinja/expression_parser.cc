#include "jinja/expression_parser.h"

#include <array>
#include <optional>

#include "jinja/literals.h"

namespace kvcal::jinja {
namespace {

bool is_constant_name(std::string_view name) {
  return name == "true" || name == "True" || name == "false" || name == "False" || name == "none" ||
         name == "None";
}

std::optional<Operator> compare_operator(const Token& token) {
  constexpr std::array<std::pair<std::string_view, Operator>, 6> kSymbols{
      {{"==", Operator::kEqual},
       {"!=", Operator::kNotEqual},
       {"<", Operator::kLess},
       {"<=", Operator::kLessEqual},
       {">", Operator::kGreater},
       {">=", Operator::kGreaterEqual}}};
  for (const auto& [symbol, found] : kSymbols)
    if (token.is_operator(symbol)) return found;
  return std::nullopt;
}

std::optional<Operator> product_operator(const Token& token) {
  if (token.is_operator("*")) return Operator::kMultiply;
  if (token.is_operator("/")) return Operator::kDivide;
  if (token.is_operator("//")) return Operator::kFloorDivide;
  if (token.is_operator("%")) return Operator::kModulo;
  return std::nullopt;
}

}  // namespace

bool ExpressionParser::is_tuple_end() const {
  return token().is(TokenType::kVariableEnd) || token().is(TokenType::kBlockEnd) ||
         token().is_operator(")");
}

Expression* ExpressionParser::parse_tuple(const TupleRules& rules) {
  const int line = token().line;
  std::vector<Expression*> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) expect_operator(",");
    if (is_tuple_end()) break;
    items.push_back(rules.is_simplified ? parse_primary(rules.may_be_attribute)
                                        : parse_expression(rules.has_conditional));
    if (!token().is_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return items[0];
    if (!rules.is_parenthesized) stop("found " + described(token()) + ", expected an expression");
  }
  return make(ExpressionKind::kTuple, line, std::move(items));
}

Expression* ExpressionParser::parse_expression(bool has_conditional) {
  const Nesting nesting(*this);
  return has_conditional ? parse_conditional() : parse_or();
}

Expression* ExpressionParser::parse_conditional() {
  int line = token().line;
  Expression* result = parse_or();
  while (skip_name("if")) {
    Expression* condition = parse_or();
    Expression* otherwise = nullptr;
    if (skip_name("else")) {
      const Nesting nesting(*this);
      otherwise = parse_conditional();
    }
    result = make(ExpressionKind::kConditional, line, {condition, result, otherwise});
    line = token().line;
  }
  return result;
}

Expression* ExpressionParser::parse_or() {
  const int line = token().line;
  Expression* left = parse_and();
  while (skip_name("or")) left = make(ExpressionKind::kOr, line, {left, parse_and()});
  return left;
}

Expression* ExpressionParser::parse_and() {
  const int line = token().line;
  Expression* left = parse_not();
  while (skip_name("and")) left = make(ExpressionKind::kAnd, line, {left, parse_not()});
  return left;
}

Expression* ExpressionParser::parse_not() {
  if (!token().is_name("not")) return parse_compare();
  const Nesting nesting(*this);
  const int line = take().line;
  return make(ExpressionKind::kNot, line, {parse_not()});
}

Expression* ExpressionParser::parse_compare() {
  const int line = token().line;
  std::vector<Expression*> items{parse_sum()};
  std::vector<Operator> operators;
  while (true) {
    if (const std::optional<Operator> found = compare_operator(token())) {
      take();
      operators.push_back(*found);
    } else if (skip_name("in")) {
      operators.push_back(Operator::kIn);
    } else if (token().is_name("not") && following().is_name("in")) {
      take();
      take();
      operators.push_back(Operator::kNotIn);
    } else {
      break;
    }
    items.push_back(parse_sum());
  }
  if (operators.empty()) return items[0];
  Expression* compare = make(ExpressionKind::kCompare, line, std::move(items));
  compare->operators = std::move(operators);
  return compare;
}

Expression* ExpressionParser::parse_sum() {
  const int line = token().line;
  Expression* left = parse_concat();
  while (token().is_operator("+") || token().is_operator("-")) {
    const Operator found = take().text == "+" ? Operator::kAdd : Operator::kSubtract;
    left = make(ExpressionKind::kBinary, line, {left, parse_concat()});
    left->operators = {found};
  }
  return left;
}

Expression* ExpressionParser::parse_concat() {
  const int line = token().line;
  std::vector<Expression*> items{parse_product()};
  while (skip_operator("~")) items.push_back(parse_product());
  return items.size() == 1 ? items[0] : make(ExpressionKind::kConcat, line, std::move(items));
}

Expression* ExpressionParser::parse_product() {
  const int line = token().line;
  Expression* left = parse_power();
  while (const std::optional<Operator> found = product_operator(token())) {
    take();
    left = make(ExpressionKind::kBinary, line, {left, parse_power()});
    left->operators = {*found};
  }
  return left;
}

Expression* ExpressionParser::parse_power() {
  const int line = token().line;
  Expression* left = parse_unary();
  while (skip_operator("**")) {
    left = make(ExpressionKind::kBinary, line, {left, parse_unary()});
    left->operators = {Operator::kPower};
  }
  return left;
}

Expression* ExpressionParser::parse_unary(bool has_filters) {
  Expression* result = nullptr;
  if (token().is_operator("-") || token().is_operator("+")) {
    const Nesting nesting(*this);
    const int line = token().line;
    const Operator found = take().text == "-" ? Operator::kNegate : Operator::kPlus;
    result = make(ExpressionKind::kUnary, line, {parse_unary(false)});
    result->operators = {found};
  } else {
    result = parse_primary();
  }
  result = parse_postfix(result);
  return has_filters ? parse_filters_and_tests(result) : result;
}

Expression* ExpressionParser::parse_name(bool may_be_attribute) {
  const Token& name = take();
  if (is_constant_name(name.text)) {
    Expression* constant = make(ExpressionKind::kConstant, name.line);
    const char first = static_cast<char>(name.text[0] | 0x20);
    constant->value = first == 'n' ? Value::none() : Value::boolean(first == 't');
    return constant;
  }
  Expression* result = make(ExpressionKind::kName, name.line);
  result->text = name.text;
  if (may_be_attribute && skip_operator(".")) {
    result->kind = ExpressionKind::kAttributeTarget;
    result->attribute = expect(TokenType::kName, "a name").text;
  }
  return result;
}

Expression* ExpressionParser::parse_primary(bool may_be_attribute) {
  const int line = token().line;
  switch (token().type) {
    case TokenType::kName:
      return parse_name(may_be_attribute);
    case TokenType::kString: {
      Expression* constant = make(ExpressionKind::kConstant, line);
      const std::string_view first = take().text;
      constant->value = Value::text(first);
      if (!token().is(TokenType::kString)) return constant;
      std::string joined(first);
      while (token().is(TokenType::kString)) joined += take().text;
      constant->value = Value::text(tree_.texts.emplace_back(std::move(joined)));
      return constant;
    }
    case TokenType::kInteger:
    case TokenType::kFloat: {
      Expression* constant = make(ExpressionKind::kConstant, line);
      const Token& number = take();
      constant->value = in_context("line " + std::to_string(line), [&] {
        return number.is(TokenType::kInteger) ? Value::integer(integer_value(number.text))
                                              : Value::number(float_value(number.text));
      });
      return constant;
    }
    default:
      break;
  }
  if (token().is_operator("[")) return parse_list();
  if (token().is_operator("{")) return parse_dict();
  if (!skip_operator("(")) stop("unexpected " + described(token()));
  Expression* inner = parse_tuple({.is_parenthesized = true});
  expect_operator(")");
  return inner;
}

Expression* ExpressionParser::parse_list() {
  const int line = take().line;
  std::vector<Expression*> items;
  while (!token().is_operator("]")) {
    if (!items.empty()) expect_operator(",");
    if (token().is_operator("]")) break;
    items.push_back(parse_expression());
  }
  expect_operator("]");
  return make(ExpressionKind::kList, line, std::move(items));
}

Expression* ExpressionParser::parse_dict() {
  const int line = take().line;
  std::vector<Expression*> items;
  while (!token().is_operator("}")) {
    if (!items.empty()) expect_operator(",");
    if (token().is_operator("}")) break;
    items.push_back(parse_expression());
    expect_operator(":");
    items.push_back(parse_expression());
  }
  expect_operator("}");
  return make(ExpressionKind::kDict, line, std::move(items));
}

void ExpressionParser::require_assignable(const Expression* target) const {
  switch (target->kind) {
    case ExpressionKind::kName:
    case ExpressionKind::kAttributeTarget:
      return;
    case ExpressionKind::kTuple:
      for (const Expression* item : target->items) require_assignable(item);
      return;
    default:
      stop("this cannot be assigned to", target->line);
  }
}

Expression* ExpressionParser::parse_target(bool may_be_attribute) {
  Expression* target = parse_tuple({.is_simplified = true, .may_be_attribute = may_be_attribute});
  require_assignable(target);
  return target;
}

std::string_view ExpressionParser::parse_name_target() {
  const Token& name = expect(TokenType::kName, "a name");
  if (is_constant_name(name.text))
    stop("'" + std::string(name.text) + "' cannot be assigned to", name.line);
  return name.text;
}

}  // namespace kvcal::jinja
