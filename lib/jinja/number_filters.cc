#include <algorithm>
#include <array>
#include <cmath>

#include "jinja/calls.h"
#include "jinja/operators.h"
#include "jinja/python_str.h"

namespace kvcal::jinja {
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
  if (const auto integer = parse_integer(call.run, call.self_text(), call.integer(1, 10)))
    return Value::integer(*integer);
  const auto number = parse_float(call.run, call.self_text());
  return number && std::isfinite(*number) ? Value::integer(truncated(*number)) : fallback;
}

Value to_float(const Call& call) {
  require_defined(call.self);
  if (call.self.is_number()) return Value::number(call.self.as_number());
  const auto number =
      call.self.is_string() ? parse_float(call.run, call.self_text()) : std::nullopt;
  return number ? Value::number(*number) : call.value_or(0, Value::number(0.0));
}

Value absolute(const Call& call) {
  require_defined(call.self);
  if (!call.self.is_number()) fail("bad operand type for abs(): '", type_name(call.self), "'");
  if (call.self.is(Type::kFloat)) return Value::number(std::abs(call.self.as_number()));
  return call.self.as_integer() < 0 ? signed_number(true, call.self)
                                    : Value::integer(call.self.as_integer());
}

Value round(const Call& call) {
  require_defined(call.self);
  if (!call.self.is_number()) fail("round needs a number, not ", type_name(call.self));
  const std::string_view method = call.text(1, "common");
  const int64_t precision = call.integer(0);
  // Digits are slow to make, and a float may have that many before the point.
  constexpr int64_t kMostDigits = 309;
  call.run.charge(static_cast<uint64_t>(kMostDigits + std::clamp<int64_t>(precision, 0, 340)) / 8);
  if (method == "common") return rounded(call.self, precision);
  if (method != "ceil" && method != "floor") fail("method must be common, ceil or floor");
  const double unit = std::pow(10.0, static_cast<double>(precision));
  const double scaled = call.self.as_number() * unit;
  return Value::number((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

}  // namespace

std::span<const Native> number_filters() {
  static constexpr auto kFilters = std::to_array<Native>({{"int", "default=, base=", to_integer},
                                                          {"float", "default=", to_float},
                                                          {"abs", "", absolute},
                                                          {"round", "precision=, method=", round}});
  return kFilters;
}

}  // namespace kvcal::jinja
