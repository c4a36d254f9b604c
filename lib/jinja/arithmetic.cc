#include <algorithm>
#include <array>
#include <cmath>

#include "jinja/value_operations.h"

namespace kvcal::jinja {
namespace {

[[noreturn]] void fail_types(Operator op, const Value& a, const Value& b) {
  fail("unsupported operand type(s) for ", symbol_of(op), op == Operator::kPower ? " or pow()" : "",
       ": '", type_name(a), "' and '", type_name(b), "'");
}
[[noreturn]] void fail_overflow(Operator op) {
  fail("the result of ", symbol_of(op), " is past 64 signed bits");
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) fail("integer division or modulo by zero");
  if (a == INT64_MIN && b == -1) fail_overflow(Operator::kFloorDivide);
  return a / b - ((a % b != 0) && ((a < 0) != (b < 0)));
}
int64_t floor_modulo(int64_t a, int64_t b) {
  if (b == 0) fail("integer modulo by zero");
  if (b == -1) return 0;
  const int64_t rest = a % b;
  return rest != 0 && ((rest < 0) != (b < 0)) ? rest + b : rest;
}

Value integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0 && base == 0) fail("0.0 cannot be raised to a negative power");
  if (exponent < 0)
    return Value::number(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  int64_t result = 1;
  for (int64_t square = base; exponent > 0; exponent >>= 1) {
    if (((exponent & 1) != 0 && __builtin_mul_overflow(result, square, &result)) ||
        (exponent > 1 && __builtin_mul_overflow(square, square, &square)))
      fail_overflow(Operator::kPower);
  }
  return Value::integer(result);
}

Value of_integers(Operator op, int64_t a, int64_t b) {
  if (op == Operator::kPower) return integer_power(a, b);
  if (op == Operator::kDivide) {
    if (b == 0) fail("division by zero");
    return Value::number(
        static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
  }
  int64_t result = 0;
  bool overflows = false;
  if (op == Operator::kAdd) overflows = __builtin_add_overflow(a, b, &result);
  if (op == Operator::kSubtract) overflows = __builtin_sub_overflow(a, b, &result);
  if (op == Operator::kMultiply) overflows = __builtin_mul_overflow(a, b, &result);
  if (op == Operator::kFloorDivide) result = floor_divide(a, b);
  if (op == Operator::kModulo) result = floor_modulo(a, b);
  if (overflows) fail_overflow(op);
  return Value::integer(result);
}

/// Python's float modulo and floor division. Source: CPython, Objects/floatobject.c,
/// _float_div_mod.
std::pair<double, double> float_divmod(double a, double b) {
  if (b == 0.0) fail("float floor division or modulo by zero");
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0.0) {
    if ((b < 0) != (rest < 0)) {
      rest += b;
      quotient -= 1.0;
    }
  } else {
    rest = std::copysign(0.0, b);
  }
  if (quotient == 0.0) return {std::copysign(0.0, a / b), rest};
  double whole = std::floor(quotient);
  if (quotient - whole > 0.5) whole += 1.0;
  return {whole, rest};
}

Value of_floats(Operator op, double a, double b) {
  if (op == Operator::kAdd) return Value::number(a + b);
  if (op == Operator::kSubtract) return Value::number(a - b);
  if (op == Operator::kMultiply) return Value::number(a * b);
  if (op == Operator::kFloorDivide) return Value::number(float_divmod(a, b).first);
  if (op == Operator::kModulo) return Value::number(float_divmod(a, b).second);
  if (op == Operator::kDivide) {
    if (b == 0.0) fail("float division by zero");
    return Value::number(a / b);
  }
  if (a == 0.0 && b < 0.0) fail("0.0 cannot be raised to a negative power");
  if (a < 0.0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b))
    fail("a negative number to a fractional power is complex, which is not supported");
  const double power = std::pow(a, b);
  if (std::isinf(power) && std::isfinite(a) && std::isfinite(b))
    fail("the result of ** is out of range");
  return Value::number(power);
}

Value product(Run& run, const Value& sequence, int64_t count) {
  const auto times = static_cast<uint64_t>(std::max<int64_t>(count, 0));
  if (sequence.is_string()) {
    Text text(run);
    text.repeat(run.text_of(sequence), times);
    return make_text(run, std::move(text), sequence.is_markup());
  }
  const Values& part = sequence.as<List>().items;
  uint64_t size = 0;
  run.charge(__builtin_mul_overflow(uint64_t{part.size()}, times, &size) ? UINT64_MAX : size);
  run.charge_items(size);
  Values items;
  items.reserve(size);
  while (items.size() < size) items.insert(items.end(), part.begin(), part.end());
  return make_list(run, std::move(items), sequence.type());
}

Value joined_texts(Run& run, const Value& a, const Value& b) {
  const bool is_markup = a.is_markup() || b.is_markup();
  Text joined(run);
  joined.reserve(a.text_size() + b.text_size());
  for (const Value& part : {a, b}) {
    if (is_markup && !part.is_markup())
      joined += escaped_html(run, run.text_of(part));
    else
      joined += run.text_of(part);
  }
  return make_text(run, std::move(joined), is_markup);
}

Value sum(Run& run, const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) return joined_texts(run, a, b);
  if (!a.is_sequence() || a.type() != b.type()) fail_types(Operator::kAdd, a, b);
  const auto& left = a.as<List>().items;
  const auto& right = b.as<List>().items;
  run.charge_items(left.size() + right.size());
  Values items = left;
  items.insert(items.end(), right.begin(), right.end());
  return make_list(run, std::move(items), a.type());
}

}  // namespace

std::string_view symbol_of(Operator op) {
  constexpr auto kSymbols = std::to_array<std::string_view>(
      {"+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"});
  static_assert(kSymbols.size() == static_cast<size_t>(Operator::kNotIn) + 1);
  return kSymbols[static_cast<size_t>(op)];
}

Value arithmetic(Run& run, Operator op, const Value& a, const Value& b) {
  require_defined(a);
  if (op == Operator::kModulo && a.is_string()) {
    if (a.is_markup()) fail("formatting a text marked safe is not supported");
    return format_percent(run, run.text_of(a), b);
  }
  require_defined(b);
  if (a.is_integral() && b.is_integral()) return of_integers(op, a.as_integer(), b.as_integer());
  if (a.is_number() && b.is_number()) return of_floats(op, a.as_number(), b.as_number());
  const auto can_repeat = [](const Value& value) {
    return value.is_string() || value.is_sequence();
  };
  if (op == Operator::kMultiply && can_repeat(a) && b.is_integral())
    return product(run, a, b.as_integer());
  if (op == Operator::kMultiply && a.is_integral() && can_repeat(b))
    return product(run, b, a.as_integer());
  if (op == Operator::kAdd) return sum(run, a, b);
  fail_types(op, a, b);
}

Value signed_number(bool is_negated, const Value& a) {
  require_defined(a);
  if (!a.is_number())
    fail("bad operand type for unary ", is_negated ? "-" : "+", ": '", type_name(a), "'");
  if (a.is(Type::kFloat)) return Value::number(is_negated ? -a.as_number() : a.as_number());
  if (!is_negated) return Value::integer(a.as_integer());
  if (a.as_integer() == INT64_MIN) fail("the result of - is past 64 signed bits");
  return Value::integer(-a.as_integer());
}

Text escaped_html(Run& run, std::string_view text) {
  constexpr std::pair<char, std::string_view> kEscapes[] = {
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'\'', "&#39;"}, {'"', "&#34;"}};
  Text out(run);
  for (const char c : text) {
    const auto* escape = std::ranges::find(kEscapes, c, [](const auto& one) { return one.first; });
    if (escape == std::end(kEscapes))
      out += c;
    else
      out += escape->second;
  }
  return out;
}

}  // namespace kvcal::jinja
