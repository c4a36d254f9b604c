#include "jinja/calls.h"
#include "jinja/interpreter.h"
#include "jinja/text_value.h"

namespace kvcal::jinja {

Value Interpreter::evaluate(const Expression& expression) {
  const Depth depth(run_);
  run_.charge();
  line_ = expression.line;
  const auto& items = expression.items;
  switch (expression.kind) {
    case ExpressionKind::kConstant:
      return expression.value;
    case ExpressionKind::kName: {
      const Value value = look_up(expression.name);
      return value.is_missing() ? undefined_name(run_, expression.text) : value;
    }
    case ExpressionKind::kTuple:
      return make_list(run_, evaluate_items(expression), Type::kTuple);
    case ExpressionKind::kList:
      return make_list(run_, evaluate_items(expression));
    case ExpressionKind::kDict:
      return evaluate_dict(expression);
    case ExpressionKind::kUnary:
      return signed_number(expression.operators[0] == Operator::kSubtract, evaluate(*items[0]));
    case ExpressionKind::kBinary: {
      const Value left = evaluate(*items[0]);
      return arithmetic(run_, expression.operators[0], left, evaluate(*items[1]));
    }
    case ExpressionKind::kCompare:
      return evaluate_compare(expression);
    case ExpressionKind::kAnd: {
      const Value left = evaluate(*items[0]);
      return is_true(left) ? evaluate(*items[1]) : left;
    }
    case ExpressionKind::kOr: {
      const Value left = evaluate(*items[0]);
      return is_true(left) ? left : evaluate(*items[1]);
    }
    case ExpressionKind::kNot:
      return Value::boolean(!is_true(evaluate(*items[0])));
    case ExpressionKind::kConcat:
      return evaluate_concat(expression);
    case ExpressionKind::kConditional:
      return evaluate_conditional(expression);
    case ExpressionKind::kAttribute:
      return attribute_of(run_, evaluate(*items[0]), expression.text);
    case ExpressionKind::kItem:
      return evaluate_item(expression);
    case ExpressionKind::kCall:
      return evaluate_call(expression);
    case ExpressionKind::kFilter:
      return evaluate_filter(expression);
    case ExpressionKind::kTest: {
      const Value input = evaluate(*items[0]);
      return Value::boolean(
          apply_test(expression.text, input, evaluate_arguments(expression.call)));
    }
    case ExpressionKind::kSlice:
    case ExpressionKind::kAttributeTarget:
      break;
  }
  KVCAL_CHECK(false);
  return {};
}

Values Interpreter::evaluate_items(const Expression& expression) {
  Values values;
  values.reserve(expression.items.size());
  for (const Expression* item : expression.items) values.push_back(evaluate(*item));
  return values;
}

Value Interpreter::evaluate_dict(const Expression& expression) {
  auto* dict = run_.make<Dict>();
  for (size_t i = 0; i + 1 < expression.items.size(); i += 2) {
    const Value key = evaluate(*expression.items[i]);
    dict->set(run_, key, evaluate(*expression.items[i + 1]));
  }
  return Value::object(Type::kDict, dict);
}

Value Interpreter::evaluate_compare(const Expression& expression) {
  Value left = evaluate(*expression.items[0]);
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    const Value right = evaluate(*expression.items[i + 1]);
    if (!compare(run_, expression.operators[i], left, right)) return Value::boolean(false);
    left = right;
  }
  return Value::boolean(true);
}

Value Interpreter::evaluate_concat(const Expression& expression) {
  const Values values = evaluate_items(expression);
  uint64_t size = 0;
  for (const Value& value : values) size += value.text_size();
  Text text(run_);
  text.reserve(size);
  for (const Value& value : values) jinja::print(run_, value, text);
  return make_text(run_, std::move(text));
}

Value Interpreter::evaluate_conditional(const Expression& expression) {
  if (is_true(evaluate(*expression.items[0]))) return evaluate(*expression.items[1]);
  if (expression.items[2] != nullptr) return evaluate(*expression.items[2]);
  return undefined(run_, "the inline if-expression on line " + std::to_string(expression.line) +
                             " evaluated to false and no else section was defined.");
}

Value Interpreter::evaluate_item(const Expression& expression) {
  const Value owner = evaluate(*expression.items[0]);
  const Expression& key = *expression.items[1];
  if (key.kind != ExpressionKind::kSlice) return item_of(run_, owner, evaluate(key));
  const auto part = [&](size_t i) {
    return key.items[i] == nullptr ? Value::none() : evaluate(*key.items[i]);
  };
  const Value start = part(0), stop = part(1);
  return slice_of(run_, owner, start, stop, part(2));
}

CallArguments Interpreter::evaluate_arguments(const CallSyntax& syntax) {
  CallArguments arguments;
  for (const Expression* argument : syntax.positional)
    arguments.positional.push_back(evaluate(*argument));
  for (const auto& [name, argument] : syntax.named)
    arguments.named.emplace_back(name, evaluate(*argument));
  if (syntax.star != nullptr)
    for (const Value& item : items_of(run_, evaluate(*syntax.star)))
      arguments.positional.push_back(item);
  if (syntax.double_star == nullptr) return arguments;
  const Value mapping = evaluate(*syntax.double_star);
  require_defined(mapping);
  if (!mapping.is(Type::kDict))
    fail("argument after ** must be a mapping, not ", type_name(mapping));
  const size_t num_written = arguments.named.size();  // the mapping's own keys differ
  for (const auto& [key, value] : mapping.as<Dict>().entries) {
    run_.charge_items(2);
    if (!key.is_string()) fail("keywords must be strings");
    for (size_t i = 0; i < num_written; ++i)
      if (equals(run_, Value::text(arguments.named[i].first), key))
        fail("got multiple values for keyword argument '", arguments.named[i].first, "'");
    arguments.named.emplace_back(run_.text_of(key), value);
  }
  return arguments;
}

Value Interpreter::evaluate_call(const Expression& expression, const Value& caller) {
  const Value callee = evaluate(*expression.items[0]);
  CallArguments arguments = evaluate_arguments(expression.call);
  if (!caller.is_missing()) arguments.named.emplace_back("caller", caller);
  const int line = line_ = expression.line;
  const Value result = call(callee, arguments);
  line_ = line;
  return result;
}

Value Interpreter::call(const Value& callee, const CallArguments& arguments) {
  const Depth depth(run_);
  run_.charge();
  require_defined(callee);
  switch (callee.type()) {
    case Type::kFunction:
    case Type::kMethod:
    case Type::kJoiner:
      return call_native(*this, *callee.as<Bound>().native, callee.as<Bound>().self, arguments);
    case Type::kMacro:
      return call_macro(callee.as<Macro>(), arguments);
    case Type::kLoop:
      fail("The loop must have the 'recursive' marker to be called recursively.");
    default:
      fail("'", type_name(callee), "' object is not callable");
  }
}

Value Interpreter::evaluate_filter(const Expression& expression, const Value& block_text) {
  // A filter block's chain starts with its text.
  const Expression* operand = expression.items[0];
  Value input = block_text;
  if (operand != nullptr) {
    const bool is_chain = !block_text.is_missing() && operand->kind == ExpressionKind::kFilter;
    input = is_chain ? evaluate_filter(*operand, block_text) : evaluate(*operand);
  }
  const CallArguments arguments = evaluate_arguments(expression.call);
  line_ = expression.line;
  return apply_filter(expression.text, input, arguments);
}

Value Interpreter::apply_filter(std::string_view name, const Value& input,
                                const CallArguments& arguments) {
  run_.charge();
  const Native* filter = find_filter(name);
  if (filter == nullptr) fail("No filter named '", name, "' found.");
  if (filter->body == nullptr) fail("filter '", name, "' is not supported in chat templates");
  return call_native(*this, *filter, input, arguments);
}

bool Interpreter::apply_test(std::string_view name, const Value& input,
                             const CallArguments& arguments) {
  run_.charge();
  const Native* test = find_test(name);
  if (test == nullptr) fail("No test named '", name, "' found.");
  return is_true(call_native(*this, *test, input, arguments));
}

}  // namespace kvcal::jinja
