#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "jinja/arithmetic.h"
#include "jinja/filters.h"
#include "jinja/interpreter.h"
#include "jinja/python_str.h"

namespace kvcal::jinja {
namespace {

/// Digits without the underscores that Python allows between them; nothing if one stands elsewhere.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const auto is_digit_at = [&](size_t at) {
      return at < text.size() && std::isxdigit(static_cast<unsigned char>(text[at])) != 0;
    };
    if (i == 0 || !is_digit_at(i - 1) || !is_digit_at(i + 1)) return std::nullopt;
  }
  return out;
}

/// int(text, base), nothing where Python raises ValueError. Throws Error past 64 bits.
std::optional<int64_t> parse_integer(std::string_view text, int64_t base) {
  text = stripped(text, std::nullopt, true, true);
  if (base < 0 || base == 1 || base > 36) return std::nullopt;
  std::string number = text.starts_with("-") ? "-" : "";
  if (text.starts_with("-") || text.starts_with("+")) text.remove_prefix(1);
  if (text.size() > 1 && text[0] == '0') {
    const char mark = static_cast<char>(text[1] | 0x20);
    const int64_t marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked != 0 && (base == marked || base == 0)) {
      text.remove_prefix(2);
      if (text.starts_with("_")) text.remove_prefix(1);
      base = marked;
    } else if (base == 0 && text.find_first_not_of("0_") != std::string_view::npos) {
      return std::nullopt;
    }
  }
  const auto digits = without_underscores(text);
  if (!digits || digits->empty() || digits->front() == '-' || digits->front() == '+')
    return std::nullopt;
  number += *digits;
  int64_t value = 0;
  const auto [end, problem] = std::from_chars(number.data(), number.data() + number.size(), value,
                                              base == 0 ? 10 : static_cast<int>(base));
  if (end != number.data() + number.size()) return std::nullopt;
  if (problem == std::errc::result_out_of_range) fail("integer ", text, " is past 64 signed bits");
  return problem == std::errc{} ? std::optional(value) : std::nullopt;
}

/// float(text), nothing where Python raises ValueError.
std::optional<double> parse_float(std::string_view text) {
  text = stripped(text, std::nullopt, true, true);
  const auto number = without_underscores(text);
  if (!number || number->empty()) return std::nullopt;
  std::string_view rest = *number;
  if (rest[0] == '+' || rest[0] == '-') rest.remove_prefix(1);
  std::string name;
  for (const char c : rest) name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const bool is_named = name == "inf" || name == "infinity" || name == "nan";
  // Forms that strtod reads and Python does not: hexadecimal, "nan(…)".
  if (!is_named && rest.find_first_not_of("0123456789.eE+-") != std::string_view::npos)
    return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(number->c_str(), &end);
  if (end != number->c_str() + number->size()) return std::nullopt;
  return value;
}

int64_t truncated(double value) {
  if (!(std::abs(value) < 0x1p63)) fail("float ", value, " is past 64 signed bits");
  return static_cast<int64_t>(value);
}

Value to_integer(Interpreter&, const Value& input, const CallArguments& call) {
  const Arguments arguments("int", call, {"default", "base"});
  require_defined(input);
  const Value fallback = arguments.value_or(0, Value::integer(0));
  if (input.is_integral()) return Value::integer(input.as_integer());
  if (input.is(Type::kFloat)) {
    if (std::isinf(input.as_number())) fail("cannot convert float infinity to integer");
    return std::isnan(input.as_number()) ? fallback : Value::integer(truncated(input.as_number()));
  }
  if (!input.is_string()) return fallback;
  if (const auto integer = parse_integer(input.as_text(), arguments.integer(1, 10)))
    return Value::integer(*integer);
  const auto number = parse_float(input.as_text());
  return number && std::isfinite(*number) ? Value::integer(truncated(*number)) : fallback;
}

Value to_float(Interpreter&, const Value& input, const CallArguments& call) {
  const Arguments arguments("float", call, {"default"});
  require_defined(input);
  if (input.is_number()) return Value::number(input.as_number());
  const auto number = input.is_string() ? parse_float(input.as_text()) : std::nullopt;
  return number ? Value::number(*number) : arguments.value_or(0, Value::number(0.0));
}

Value absolute(Interpreter&, const Value& input, const CallArguments& call) {
  require_no_arguments("abs", call);
  require_defined(input);
  if (!input.is_number()) fail("bad operand type for abs(): '", type_name(input), "'");
  if (input.is(Type::kFloat)) return Value::number(std::abs(input.as_number()));
  return input.as_integer() < 0 ? unary(Operator::kNegate, input)
                                : Value::integer(input.as_integer());
}

Value round(Interpreter&, const Value& input, const CallArguments& call) {
  const Arguments arguments("round", call, {"precision", "method"});
  require_defined(input);
  if (!input.is_number()) fail("round needs a number, not ", type_name(input));
  const std::string_view method = arguments.text(1, "common");
  const int64_t precision = arguments.integer(0);
  if (method == "common") return rounded(input, precision);
  if (method != "ceil" && method != "floor") fail("method must be common, ceil or floor");
  const double unit = std::pow(10.0, static_cast<double>(precision));
  const double scaled = input.as_number() * unit;
  return Value::number((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

}  // namespace

std::span<const NamedCall> number_filters() {
  static constexpr auto kFilters = std::to_array<NamedCall>(
      {{"int", to_integer}, {"float", to_float}, {"abs", absolute}, {"round", round}});
  return kFilters;
}

}  // namespace kvcal::jinja
