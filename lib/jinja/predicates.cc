#include <array>

#include "jinja/calls.h"
#include "jinja/operators.h"

namespace kvcal::jinja {
namespace {

/// A test that only looks at the value.
template <bool (*holds)(const Value&)>
Value judge(const Call& call) {
  return Value::boolean(holds(call.self));
}
template <Type type>
Value is_a(const Call& call) {
  return Value::boolean(call.self.is(type));
}
template <bool wanted>
Value is_bool(const Call& call) {
  return Value::boolean(call.self.is(Type::kBool) && is_true(call.self) == wanted);
}

bool is_defined(const Value& value) {
  return !value.is_undefined();
}
bool is_number(const Value& value) {
  return value.is_number();
}
bool is_sequence(const Value& value) {
  return has_length(value) && !value.is(Type::kDictView);
}
bool is_escaped(const Value& value) {
  return value.is_markup();
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

Value has_rest(const Call& call, const Value& divisor, int64_t rest) {
  const Value modulo = arithmetic(call.run, Operator::kModulo, call.self, divisor);
  return Value::boolean(equals(call.run, modulo, Value::integer(rest)));
}
template <int rest>
Value has_rest_of_two(const Call& call) {
  return has_rest(call, Value::integer(2), rest);
}
Value is_divisible(const Call& call) {
  return has_rest(call, call[0], 0);
}

template <Operator op>
Value compares(const Call& call) {
  return Value::boolean(compare(call.run, op, call.self, call[0]));
}

Value is_identical(const Call& call) {
  return Value::boolean(is_same(call.self, call[0]));
}

template <const Native* (*find)(std::string_view)>
Value is_known(const Call& call) {
  if (!is_hashable(call.run, call.self)) fail("unhashable type: '", type_name(call.self), "'");
  return Value::boolean(call.self.is_string() && find(call.self_text()) != nullptr);
}

}  // namespace

std::span<const Native> value_tests() {
  static constexpr auto kTests =
      std::to_array<Native>({{"defined", "", judge<is_defined>},
                             {"undefined", "", is_a<Type::kUndefined>},
                             {"none", "", is_a<Type::kNone>},
                             {"boolean", "", is_a<Type::kBool>},
                             {"false", "", is_bool<false>},
                             {"true", "", is_bool<true>},
                             {"integer", "", is_a<Type::kInt>},
                             {"float", "", is_a<Type::kFloat>},
                             {"string", "", is_a<Type::kString>},
                             {"mapping", "", is_a<Type::kDict>},
                             {"number", "", judge<is_number>},
                             {"sequence", "", judge<is_sequence>},
                             {"iterable", "", judge<is_iterable>},
                             {"callable", "", judge<is_callable>},
                             {"escaped", "", judge<is_escaped>},
                             {"odd", "", has_rest_of_two<1>},
                             {"even", "", has_rest_of_two<0>},
                             {"divisibleby", "num", is_divisible},
                             {"sameas", "other", is_identical},
                             {"in", "seq", compares<Operator::kIn>},
                             {"filter", "", is_known<find_filter>},
                             {"test", "", is_known<find_test>},
                             {"==", "other, /", compares<Operator::kEqual>},
                             {"eq", "other, /", compares<Operator::kEqual>},
                             {"equalto", "other, /", compares<Operator::kEqual>},
                             {"!=", "other, /", compares<Operator::kNotEqual>},
                             {"ne", "other, /", compares<Operator::kNotEqual>},
                             {">", "other, /", compares<Operator::kGreater>},
                             {"gt", "other, /", compares<Operator::kGreater>},
                             {"greaterthan", "other, /", compares<Operator::kGreater>},
                             {">=", "other, /", compares<Operator::kGreaterEqual>},
                             {"ge", "other, /", compares<Operator::kGreaterEqual>},
                             {"<", "other, /", compares<Operator::kLess>},
                             {"lt", "other, /", compares<Operator::kLess>},
                             {"lessthan", "other, /", compares<Operator::kLess>},
                             {"<=", "other, /", compares<Operator::kLessEqual>},
                             {"le", "other, /", compares<Operator::kLessEqual>}});
  return kTests;
}

}  // namespace kvcal::jinja
