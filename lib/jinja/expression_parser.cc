#include "jinja/expression_parser.h"

#include <array>
#include <cmath>
#include <span>

#include "jinja/calls.h"
#include "jinja/text_value.h"

namespace kvcal::jinja {
namespace {

bool is_constant_name(std::string_view name) {
  return name == "true" || name == "True" || name == "false" || name == "False" || name == "none" ||
         name == "None";
}

/// Operators of one precedence, which take operands of the next level from left to right.
struct BinaryLevel {
  ExpressionKind kind = ExpressionKind::kBinary;
  std::span<const Operator> operators = {};
  std::string_view name = {};  ///< of an operator that is a word
};
constexpr std::array kSums{Operator::kAdd, Operator::kSubtract};
constexpr std::array kProducts{Operator::kMultiply, Operator::kDivide, Operator::kFloorDivide,
                               Operator::kModulo};
constexpr std::array kPowers{Operator::kPower};
enum Level : size_t { kOr, kAnd, kSum, kProduct, kPower };
constexpr std::array<BinaryLevel, 5> kLevels{{{.kind = ExpressionKind::kOr, .name = "or"},
                                              {.kind = ExpressionKind::kAnd, .name = "and"},
                                              {.operators = kSums},
                                              {.operators = kProducts},
                                              {.operators = kPowers}}};
constexpr std::array kComparisons{Operator::kEqual,   Operator::kNotEqual,
                                  Operator::kLess,    Operator::kLessEqual,
                                  Operator::kGreater, Operator::kGreaterEqual};

/// The one of operators that token is, or null.
const Operator* find_operator(const Token& token, std::span<const Operator> operators) {
  for (const Operator& op : operators)
    if (token.is_operator(symbol_of(op))) return &op;
  return nullptr;
}

/// The value of a literal. Throws Error when it does not fit 64 bits or is not finite.
Value number_of(const Token& number) {
  if (number.is(TokenType::kInteger)) return Value::integer(*parse_integer(number.text, 0));
  const double value = *parse_float(number.text);
  if (!std::isfinite(value)) fail("number ", number.text, " is out of range");
  return Value::number(value);
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
  return has_conditional ? parse_conditional() : parse_binary(kOr);
}

Expression* ExpressionParser::parse_conditional() {
  int line = token().line;
  const size_t known = num_unknown();
  Expression* result = parse_binary(kOr);
  while (skip_name("if")) {
    Expression* condition = parse_binary(kOr);
    Expression* otherwise = nullptr;
    if (skip_name("else")) {
      const Nesting nesting(*this);
      otherwise = parse_conditional();
    }
    result = make(ExpressionKind::kConditional, line, {condition, result, otherwise});
    forget_unknown(known);
    line = token().line;
  }
  return result;
}

Expression* ExpressionParser::parse_binary(size_t level) {
  const BinaryLevel& rules = kLevels[level];
  const int line = token().line;
  Expression* left = parse_operand(level);
  while (true) {
    const Operator* found = find_operator(token(), rules.operators);
    if (found == nullptr && (rules.name.empty() || !token().is_name(rules.name))) return left;
    take();
    left = make(rules.kind, line, {left, parse_operand(level)});
    if (found != nullptr) left->operators = {*found};
  }
}

Expression* ExpressionParser::parse_operand(size_t level) {
  switch (level) {
    case kOr:
      return parse_binary(kAnd);
    case kAnd:
      return parse_not();
    case kSum:
      return parse_concat();
    case kProduct:
      return parse_binary(kPower);
    default:
      return parse_unary();
  }
}

Expression* ExpressionParser::parse_not() {
  if (!token().is_name("not")) return parse_compare();
  const Nesting nesting(*this);
  const int line = take().line;
  return make(ExpressionKind::kNot, line, {parse_not()});
}

Expression* ExpressionParser::parse_compare() {
  const int line = token().line;
  std::vector<Expression*> items{parse_binary(kSum)};
  std::vector<Operator> operators;
  while (true) {
    if (const Operator* found = find_operator(token(), kComparisons)) {
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
    items.push_back(parse_binary(kSum));
  }
  if (operators.empty()) return items[0];
  Expression* compare = make(ExpressionKind::kCompare, line, std::move(items));
  compare->operators = std::move(operators);
  return compare;
}

Expression* ExpressionParser::parse_concat() {
  const int line = token().line;
  std::vector<Expression*> items{parse_binary(kProduct)};
  while (skip_operator("~")) items.push_back(parse_binary(kProduct));
  return items.size() == 1 ? items[0] : make(ExpressionKind::kConcat, line, std::move(items));
}

Expression* ExpressionParser::parse_unary(bool has_filters) {
  Expression* result = nullptr;
  if (token().is_operator("-") || token().is_operator("+")) {
    const Nesting nesting(*this);
    const int line = token().line;
    const Operator found = take().text == "-" ? Operator::kSubtract : Operator::kAdd;
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
  if (name.text == "self") stop("'self' is not supported in chat templates", name.line);
  Expression* result = make(ExpressionKind::kName, name.line);
  result->text = name.text;
  result->name = number_of_name(name.text);
  if (!is_target_) note_own_name(result->name, false);
  for (Statement* function : functions_) {
    function->reads_caller |= result->name == kCallerName;
    function->reads_kwargs |= result->name == kKwargsName;
    function->reads_varargs |= result->name == kVarargsName;
  }
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
      constant->value =
          in_context("line " + std::to_string(line), [&] { return number_of(number); });
      return constant;
    }
    default:
      break;
  }
  if (token().is_operator("[") || token().is_operator("{")) return parse_list();
  if (!skip_operator("(")) stop("unexpected " + described(token()));
  Expression* inner = parse_tuple({.is_parenthesized = true});
  expect_operator(")");
  return inner;
}

Expression* ExpressionParser::parse_list() {
  const bool is_dict = token().is_operator("{");
  const std::string_view close = is_dict ? "}" : "]";
  const int line = take().line;
  std::vector<Expression*> items;
  while (!token().is_operator(close)) {
    if (!items.empty()) expect_operator(",");
    if (token().is_operator(close)) break;
    items.push_back(parse_expression());
    if (!is_dict) continue;
    expect_operator(":");
    items.push_back(parse_expression());
  }
  expect_operator(close);
  return make(is_dict ? ExpressionKind::kDict : ExpressionKind::kList, line, std::move(items));
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
  is_target_ = true;
  Expression* target = parse_tuple({.is_simplified = true, .may_be_attribute = may_be_attribute});
  is_target_ = false;
  require_assignable(target);
  return target;
}

std::string_view ExpressionParser::parse_name_target() {
  const Token& name = expect(TokenType::kName, "a name");
  if (is_constant_name(name.text))
    stop("'" + std::string(name.text) + "' cannot be assigned to", name.line);
  return name.text;
}

Expression* ExpressionParser::parse_postfix(Expression* operand) {
  while (true) {
    if (token().is_operator(".") || token().is_operator("["))
      operand = parse_subscript(operand);
    else if (token().is_operator("("))
      operand = parse_call(operand);
    else
      return operand;
  }
}

Expression* ExpressionParser::parse_filters_and_tests(Expression* operand) {
  while (true) {
    if (token().is_operator("|"))
      operand = parse_filters(operand);
    else if (token().is_name("is"))
      operand = parse_test(operand);
    else if (token().is_operator("("))
      operand = parse_call(operand);
    else
      return operand;
  }
}

Expression* ExpressionParser::parse_subscript(Expression* operand) {
  const Token& opening = take();
  if (opening.text == ".") {
    const Token& part = take();
    if (part.is(TokenType::kName)) {
      Expression* attribute = make(ExpressionKind::kAttribute, opening.line, {operand});
      attribute->text = part.text;
      return attribute;
    }
    if (!part.is(TokenType::kInteger))
      stop("found " + described(part) + ", expected a name or number", part.line);
    Expression* index = make(ExpressionKind::kConstant, part.line);
    index->value = number_of(part);
    return make(ExpressionKind::kItem, opening.line, {operand, index});
  }
  std::vector<Expression*> items;
  while (!token().is_operator("]")) {
    if (!items.empty()) expect_operator(",");
    items.push_back(parse_subscribed());
  }
  expect_operator("]");
  if (items.size() == 1) return make(ExpressionKind::kItem, opening.line, {operand, items[0]});
  for (const Expression* item : items)
    if (item->kind == ExpressionKind::kSlice)
      stop("a slice among several subscripts", opening.line);
  Expression* tuple = make(ExpressionKind::kTuple, opening.line, std::move(items));
  return make(ExpressionKind::kItem, opening.line, {operand, tuple});
}

Expression* ExpressionParser::parse_subscribed() {
  const int line = token().line;
  std::vector<Expression*> parts(3, nullptr);
  if (!token().is_operator(":")) {
    parts[0] = parse_expression();
    if (!token().is_operator(":")) return parts[0];
  }
  take();
  const auto is_end = [&] { return token().is_operator("]") || token().is_operator(","); };
  if (!token().is_operator(":") && !is_end()) parts[1] = parse_expression();
  if (skip_operator(":") && !is_end()) parts[2] = parse_expression();
  return make(ExpressionKind::kSlice, line, std::move(parts));
}

Expression* ExpressionParser::parse_call(Expression* callee) {
  Expression* call = make(ExpressionKind::kCall, token().line, {callee});
  parse_arguments(call);
  return call;
}

void ExpressionParser::parse_arguments(Expression* owner) {
  CallSyntax& call = owner->call;
  const int line = token().line;
  expect_operator("(");
  const auto require = [&](bool is_allowed) {
    if (!is_allowed) stop("arguments in an order that a call does not take", line);
  };
  std::set<std::string_view> names;
  bool is_first = true;
  while (!token().is_operator(")")) {
    if (!is_first) {
      expect_operator(",");
      if (token().is_operator(")")) break;
    }
    is_first = false;
    Expression* argument = nullptr;
    if (skip_operator("*")) {
      require(call.star == nullptr && call.double_star == nullptr);
      argument = call.star = parse_expression();
    } else if (skip_operator("**")) {
      require(call.double_star == nullptr);
      argument = call.double_star = parse_expression();
    } else if (token().is(TokenType::kName) && following().is_operator("=")) {
      require(call.double_star == nullptr);
      const std::string_view name = take().text;
      take();
      add_name(names, name, "argument");
      argument = parse_expression();
      call.named.emplace_back(name, argument);
    } else {
      require(call.star == nullptr && call.double_star == nullptr && call.named.empty());
      argument = parse_expression();
      call.positional.push_back(argument);
    }
    deepen(owner, argument);
  }
  expect_operator(")");
}

void ExpressionParser::settle_late_names() const {
  std::vector<std::string_view> texts(tree_.names.size());
  for (const auto& [text, name] : tree_.names) texts[static_cast<size_t>(name)] = text;
  for (const ScopeNames& scope : scopes_)
    for (const int name : scope.late) {
      const ScopeNames* around = scope.outer;
      while (around != nullptr && !around->own.contains(name)) around = around->outer;
      if (around == nullptr)
        scope.block->late_names.emplace_back(name, texts[static_cast<size_t>(name)]);
    }
}

void ExpressionParser::add_unknown(std::string_view what, const Expression* expression) {
  unknown_.push_back("line " + std::to_string(expression->line) + ": no " + std::string(what) +
                     " named '" + std::string(message_part(expression->text)) + "'");
}

void ExpressionParser::add_name(std::set<std::string_view>& names, std::string_view name,
                                std::string_view what) const {
  if (!names.insert(name).second)
    stop(std::string(what) + " '" + std::string(name) + "' appears twice");
}

std::string_view ExpressionParser::parse_dotted_name() {
  const std::string_view first = expect(TokenType::kName, "a name").text;
  if (!token().is_operator(".")) return first;
  std::string name(first);
  while (skip_operator(".")) {
    name += '.';
    name += expect(TokenType::kName, "a name").text;
  }
  return tree_.texts.emplace_back(std::move(name));
}

Expression* ExpressionParser::parse_filters(Expression* operand, bool is_first) {
  while (is_first || token().is_operator("|")) {
    if (!is_first) take();
    is_first = false;
    Expression* filter = make(ExpressionKind::kFilter, token().line, {operand});
    filter->text = parse_dotted_name();
    if (find_filter(filter->text) == nullptr) add_unknown("filter", filter);
    if (token().is_operator("(")) parse_arguments(filter);
    operand = filter;
  }
  return operand;
}

bool ExpressionParser::starts_test_argument() const {
  switch (token().type) {
    case TokenType::kName:
      return !token().is_name("else") && !token().is_name("or") && !token().is_name("and");
    case TokenType::kString:
    case TokenType::kInteger:
    case TokenType::kFloat:
      return true;
    default:
      return token().is_operator("[") || token().is_operator("{");
  }
}

Expression* ExpressionParser::parse_test(Expression* operand) {
  const int line = take().line;
  const bool is_negated = skip_name("not");
  Expression* test = make(ExpressionKind::kTest, line, {operand});
  test->text = parse_dotted_name();
  if (find_test(test->text) == nullptr) add_unknown("test", test);
  if (token().is_operator("(")) {
    parse_arguments(test);
  } else if (starts_test_argument()) {
    if (token().is_name("is")) stop("tests with `is` cannot be chained");
    Expression* argument = parse_postfix(parse_primary());
    test->call.positional.push_back(argument);
    deepen(test, argument);
  }
  return is_negated ? make(ExpressionKind::kNot, line, {test}) : test;
}

}  // namespace kvcal::jinja
