#include "jinja/expression_parser.h"
#include "jinja/literals.h"

namespace kvcal::jinja {

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
    index->value = Value::integer(integer_value(part.text));
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
      for (const auto& [known, value] : call.named)
        if (known == name) stop("argument '" + std::string(name) + "' is given twice", line);
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

std::string_view ExpressionParser::parse_dotted_name() {
  std::string_view name = expect(TokenType::kName, "a name").text;
  while (skip_operator("."))
    name = tree_.texts.emplace_back(std::string(name) + "." +
                                    std::string(expect(TokenType::kName, "a name").text));
  return name;
}

Expression* ExpressionParser::parse_filters(Expression* operand, bool is_first) {
  while (is_first || token().is_operator("|")) {
    if (!is_first) take();
    is_first = false;
    Expression* filter = make(ExpressionKind::kFilter, token().line, {operand});
    filter->text = parse_dotted_name();
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
