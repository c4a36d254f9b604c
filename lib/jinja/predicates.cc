#include "jinja/predicates.h"

#include <array>

#include "jinja/arithmetic.h"
#include "jinja/filters.h"
#include "jinja/interpreter.h"
#include "jinja/printing.h"
#include "jinja/python_str.h"

namespace kvcal::jinja {
namespace {

/// A test without arguments that only looks at the value.
template <bool (*holds)(const Value&)>
Value judge(Interpreter&, const Value& input, const CallArguments& call) {
  require_no_arguments("this test", call);
  return Value::boolean(holds(input));
}

bool is_defined(const Value& value) {
  return !value.is_undefined();
}
bool is_undefined(const Value& value) {
  return value.is_undefined();
}
bool is_none(const Value& value) {
  return value.is_none();
}
bool is_boolean(const Value& value) {
  return value.is(Type::kBool);
}
bool is_false(const Value& value) {
  return value.is(Type::kBool) && value.as_integer() == 0;
}
bool is_truth(const Value& value) {
  return value.is(Type::kBool) && value.as_integer() != 0;
}
bool is_integer(const Value& value) {
  return value.is(Type::kInt);
}
bool is_float(const Value& value) {
  return value.is(Type::kFloat);
}
bool is_string(const Value& value) {
  return value.is_string();
}
bool is_mapping(const Value& value) {
  return value.is(Type::kDict);
}
bool is_number(const Value& value) {
  return value.is_number();
}
bool is_sequence(const Value& value) {
  return length_of(value).has_value() && !value.is(Type::kDictView);
}
bool is_escaped(const Value& value) {
  return value.is_markup();
}
bool is_walkable(const Value& value) {
  return is_iterable(value);
}
bool is_callable(const Value& value) {
  switch (value.type()) {
    case Type::kUndefined:
    case Type::kFunction:
    case Type::kMethod:
    case Type::kMacro:
    case Type::kJoiner:
    case Type::kLoop:
      return true;
    default:
      return false;
  }
}

template <bool (*wanted)(char32_t), bool (*unwanted)(char32_t)>
Value has_case(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  require_no_arguments("this test", call);
  const std::string_view text = text_view(interpreter.run(), input);
  bool has_any = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (unwanted(c) || is_title(c)) return Value::boolean(false);
    has_any |= wanted(c);
  }
  return Value::boolean(has_any);
}

template <int rest>
Value has_rest_of_two(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  require_no_arguments("this test", call);
  const Value modulo = arithmetic(interpreter.run(), Operator::kModulo, input, Value::integer(2));
  return Value::boolean(equals(interpreter.run(), modulo, Value::integer(rest)));
}

Value is_divisible(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  const Arguments arguments("divisibleby", call, {"num"}, 1);
  const Value modulo = arithmetic(interpreter.run(), Operator::kModulo, input, arguments[0]);
  return Value::boolean(equals(interpreter.run(), modulo, Value::integer(0)));
}

template <bool wanted>
Value is_equal(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  require_positional("eq", call);
  const Arguments arguments("eq", call, {"other"}, 1);
  return Value::boolean(equals(interpreter.run(), input, arguments[0]) == wanted);
}

template <Order order>
Value is_ordered(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  require_positional("this test", call);
  const Arguments arguments("this test", call, {"other"}, 1);
  return Value::boolean(in_order(interpreter.run(), order, input, arguments[0]));
}

Value is_identical(Interpreter&, const Value& input, const CallArguments& call) {
  const Arguments arguments("sameas", call, {"other"}, 1);
  return Value::boolean(is_same(input, arguments[0]));
}

Value is_in(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  const Arguments arguments("in", call, {"seq"}, 1);
  return Value::boolean(contains(interpreter.run(), arguments[0], input));
}

template <const NamedCall* (*find)(std::string_view)>
Value is_known(Interpreter&, const Value& input, const CallArguments& call) {
  require_no_arguments("this test", call);
  if (!is_hashable(input)) fail("unhashable type: '", type_name(input), "'");
  return Value::boolean(input.is_string() && find(input.as_text()) != nullptr);
}

}  // namespace

const NamedCall* find_test(std::string_view name) {
  static constexpr auto kTests =
      std::to_array<NamedCall>({{"defined", judge<is_defined>},
                                {"undefined", judge<is_undefined>},
                                {"none", judge<is_none>},
                                {"boolean", judge<is_boolean>},
                                {"false", judge<is_false>},
                                {"true", judge<is_truth>},
                                {"integer", judge<is_integer>},
                                {"float", judge<is_float>},
                                {"string", judge<is_string>},
                                {"mapping", judge<is_mapping>},
                                {"number", judge<is_number>},
                                {"sequence", judge<is_sequence>},
                                {"iterable", judge<is_walkable>},
                                {"callable", judge<is_callable>},
                                {"escaped", judge<is_escaped>},
                                {"lower", has_case<is_lower, is_upper>},
                                {"upper", has_case<is_upper, is_lower>},
                                {"odd", has_rest_of_two<1>},
                                {"even", has_rest_of_two<0>},
                                {"divisibleby", is_divisible},
                                {"sameas", is_identical},
                                {"in", is_in},
                                {"filter", is_known<find_filter>},
                                {"test", is_known<find_test>},
                                {"==", is_equal<true>},
                                {"eq", is_equal<true>},
                                {"equalto", is_equal<true>},
                                {"!=", is_equal<false>},
                                {"ne", is_equal<false>},
                                {">", is_ordered<Order::kGreater>},
                                {"gt", is_ordered<Order::kGreater>},
                                {"greaterthan", is_ordered<Order::kGreater>},
                                {">=", is_ordered<Order::kGreaterEqual>},
                                {"ge", is_ordered<Order::kGreaterEqual>},
                                {"<", is_ordered<Order::kLess>},
                                {"lt", is_ordered<Order::kLess>},
                                {"lessthan", is_ordered<Order::kLess>},
                                {"<=", is_ordered<Order::kLessEqual>},
                                {"le", is_ordered<Order::kLessEqual>}});
  return find_call(kTests, name);
}

}  // namespace kvcal::jinja
