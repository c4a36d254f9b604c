// How natives are found and called; the tests, and the filters of numbers.
#include "jinja/calls.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "core/text.h"
#include "jinja/interpreter.h"
#include "jinja/text_value.h"

namespace kvcal::jinja {

const Native* find_native(std::span<const Native> natives, std::string_view name) {
  const auto found = std::ranges::find(natives, name, &Native::name);
  return found == natives.end() ? nullptr : &*found;
}

Call::Call(Interpreter& caller, const Native& callee, const Value& owner,
           const CallArguments& arguments)
    : interpreter(caller), run(caller.run()), native(callee), self(owner), given(arguments) {
  size_t num_required = 0;
  bool takes_names = true;
  std::string_view rest = native.parameters;
  if (rest == "...") return;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(", "), rest.size());
    const std::string_view name = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 2, rest.size()));
    const bool is_optional = name.ends_with('=');
    if (name.starts_with('/') || name.starts_with('*'))
      takes_names = false;
    else
      names.push_back(name.substr(0, name.size() - (is_optional ? 1 : 0)));
    if (takes_names && !is_optional) ++num_required;
  }
  const bool has_any = !given.positional.empty() || !given.named.empty();
  if (native.parameters.empty() && has_any) fail(native.name, "() takes no arguments");
  if (!takes_names && !given.named.empty()) fail(native.name, "() takes no keyword arguments");
  if (native.parameters.starts_with('*')) return;
  if (given.positional.size() > names.size())
    fail(native.name, "() takes at most ", names.size(), " arguments, ", given.positional.size(),
         " were given");
  values = given.positional;
  values.resize(names.size());
  for (const auto& [name, value] : given.named) {
    const auto i = static_cast<size_t>(std::ranges::find(names, name) - names.begin());
    if (i == names.size()) fail(native.name, "() has no argument '", name, "'");
    if (has(i)) fail(native.name, "() got '", name, "' twice");
    values[i] = value;
  }
  for (size_t i = 0; i < num_required; ++i)
    if (!has(i)) fail(native.name, "() misses its argument '", names[i], "'");
}

int64_t Call::integer(size_t i, int64_t fallback) const {
  if (!has(i)) return fallback;
  require_defined(values[i]);
  if (!values[i].is_integral())
    fail(native.name, "(): '", names[i], "' is of type ", type_name(values[i]), ", expected int");
  return values[i].as_integer();
}

std::string_view Call::text(size_t i, std::string_view fallback) const {
  if (!has(i)) return fallback;
  if (!values[i].is_string())
    fail(native.name, "(): '", names[i], "' is of type ", type_name(values[i]), ", expected str");
  return run.text_of(values[i]);
}

std::optional<std::string_view> Call::optional_text(size_t i) const {
  if (!has(i) || values[i].is_none()) return std::nullopt;
  return text(i);
}

Value call_native(Interpreter& interpreter, const Native& native, const Value& self,
                  const CallArguments& given) {
  if (native.body == nullptr) fail(native.name, "() is not supported in chat templates");
  return native.body(Call(interpreter, native, self, given));
}

namespace {

int64_t truncated(double value) {
  if (!(std::abs(value) < 0x1p63)) fail("float ", value, " is past 64 signed bits");
  return static_cast<int64_t>(value);
}

Value to_integer(const Call& call) {
  require_defined(call.self);
  const Value fallback = call.value_or(0, Value::integer(0));
  if (call.self.is_integral()) return Value::integer(call.self.as_integer());
  if (call.self.is(Type::kFloat)) {
    if (std::isinf(call.self.as_number())) fail("cannot convert float infinity to integer");
    return std::isnan(call.self.as_number()) ? fallback
                                             : Value::integer(truncated(call.self.as_number()));
  }
  if (!call.self.is_string()) return fallback;
  if (const auto integer = parse_integer(call.self_text(), call.integer(1, 10)))
    return Value::integer(*integer);
  const auto number = parse_float(call.self_text());
  return number && std::isfinite(*number) ? Value::integer(truncated(*number)) : fallback;
}

Value to_float(const Call& call) {
  require_defined(call.self);
  if (call.self.is_number()) return Value::number(call.self.as_number());
  const auto number = call.self.is_string() ? parse_float(call.self_text()) : std::nullopt;
  return number ? Value::number(*number) : call.value_or(0, Value::number(0.0));
}

Value absolute(const Call& call) {
  require_defined(call.self);
  if (!call.self.is_number()) fail("bad operand type for abs(): '", type_name(call.self), "'");
  if (call.self.is(Type::kFloat)) return Value::number(std::abs(call.self.as_number()));
  return call.self.as_integer() < 0 ? signed_number(true, call.self)
                                    : Value::integer(call.self.as_integer());
}

/// Halves go to the even neighbour of the exact decimal value, as printf rounds.
Value round(const Call& call) {
  require_defined(call.self);
  if (!call.self.is_number()) fail("round needs a number, not ", type_name(call.self));
  const std::string_view method = call.text(1, "common");
  const int64_t precision = call.integer(0);
  if (precision < 0) fail("round() with a negative precision is not supported in chat templates");
  call.run.charge(40);  // digits are slow to make
  const double number = call.self.as_number();
  if (method == "common") {
    if (call.self.is_integral()) return Value::integer(call.self.as_integer());
    if (!std::isfinite(number) || precision > 340) return call.self;
    std::array<char, 700> digits{};
    std::snprintf(digits.data(), digits.size(), "%.*f", static_cast<int>(precision), number);
    return Value::number(std::strtod(digits.data(), nullptr));
  }
  if (method != "ceil" && method != "floor") fail("method must be common, ceil or floor");
  const double unit = std::pow(10.0, static_cast<double>(precision));
  const double scaled = number * unit;
  return Value::number((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

/// A test that only looks at the value.
template <auto holds>
Value judge(const Call& call) {
  return Value::boolean(std::invoke(holds, call.self));
}
template <Type type>
Value is_a(const Call& call) {
  return Value::boolean(call.self.is(type));
}
template <bool wanted>
Value is_bool(const Call& call) {
  return Value::boolean(call.self.is(Type::kBool) && is_true(call.self) == wanted);
}

bool is_callable(const Value& value) {
  constexpr Type kCallable[] = {Type::kUndefined, Type::kFunction, Type::kMethod,
                                Type::kMacro,     Type::kJoiner,   Type::kLoop};
  return std::ranges::find(kCallable, value.type()) != std::end(kCallable);
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

template <bool (*wanted)(char32_t), bool (*unwanted)(char32_t)>
Value is_all(const Call& call) {
  return Value::boolean(has_case(text_view(call.run, call.self), wanted, unwanted));
}

constexpr Native kNumberFilters[] = {
    {"int", "default=, base=", to_integer},
    {"float", "default=", to_float},
    {"abs", "", absolute},
    {"round", "precision=, method=", round},
};
constexpr std::string_view kFiltersLeftOut =
    "filesizeformat pprint random striptags urlencode urlize wordwrap xmlattr";

constexpr Native kTests[] = {
    {"defined", "", judge<[](const Value& value) { return !value.is_undefined(); }>},
    {"undefined", "", is_a<Type::kUndefined>},
    {"none", "", is_a<Type::kNone>},
    {"boolean", "", is_a<Type::kBool>},
    {"false", "", is_bool<false>},
    {"true", "", is_bool<true>},
    {"integer", "", is_a<Type::kInt>},
    {"float", "", is_a<Type::kFloat>},
    {"string", "", is_a<Type::kString>},
    {"mapping", "", is_a<Type::kDict>},
    {"number", "", judge<&Value::is_number>},
    {"sequence", "",
     judge<[](const Value& value) { return has_length(value) && !value.is(Type::kDictView); }>},
    {"iterable", "", judge<is_iterable>},
    {"callable", "", judge<is_callable>},
    {"escaped", "", judge<&Value::is_markup>},
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
    {"le", "other, /", compares<Operator::kLessEqual>},
    {"lower", "", is_all<is_lower, is_upper>},
    {"upper", "", is_all<is_upper, is_lower>},
};

}  // namespace

const Native* find_filter(std::string_view name) {
  static constexpr Native kRefused{"filter"};
  for (const auto& natives :
       {text_filters(), std::span<const Native>(kNumberFilters), sequence_filters()})
    if (const Native* found = find_native(natives, name)) return found;
  return has_word(kFiltersLeftOut, name) ? &kRefused : nullptr;
}

const Native* find_test(std::string_view name) {
  return find_native(kTests, name);
}

}  // namespace kvcal::jinja
