#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "jinja/formatting.h"
#include "jinja/printing.h"
#include "jinja/python_str.h"

namespace kvcal::jinja {
namespace {

constexpr int64_t kMaxWidth = 1'000'000;
constexpr int64_t kMaxPrecision = 400;

bool is_align(char c) {
  return c == '<' || c == '>' || c == '^' || c == '=';
}

int64_t read_number(std::string_view spec, size_t& at, int64_t limit) {
  int64_t value = 0;
  const size_t begin = at;
  while (at < spec.size() && spec[at] >= '0' && spec[at] <= '9') {
    value = value * 10 + (spec[at++] - '0');
    if (value > limit)
      fail("format specification '", spec, "' asks for more than ", limit, " places");
  }
  if (at == begin) fail("format specification '", spec, "' misses a number");
  return value;
}

std::string digits_of(uint64_t magnitude, int base, bool is_upper) {
  std::array<char, 72> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), magnitude, base).ptr;
  std::string digits(buffer.data(), end);
  if (is_upper)
    for (char& c : digits)
      if (c >= 'a') c = static_cast<char>(c - 'a' + 'A');
  return digits;
}

/// 1234567 → 1,234,567; only the whole part of a number is grouped.
std::string grouped(const std::string& digits, char separator, size_t group) {
  if (separator == 0) return digits;
  size_t whole = 0;
  while (whole < digits.size() && digits[whole] != '.' && digits[whole] != 'e') ++whole;
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % group == 0) out += separator;
    out += digits[i];
  }
  return out + digits.substr(whole);
}

std::string sign_of(bool is_negative, char policy) {
  if (is_negative) return "-";
  return policy == '-' ? "" : std::string(1, policy);
}

std::string with_printf(char type, int64_t precision, bool is_alternate, double magnitude) {
  std::array<char, 1024> buffer{};
  const std::string format = std::string("%") + (is_alternate ? "#" : "") + ".*" + type;
  std::snprintf(buffer.data(), buffer.size(), format.c_str(), static_cast<int>(precision),
                magnitude);
  return buffer.data();
}

/// As 'g', but one digit stays behind the point, and the exponent comes one digit earlier for it.
std::string untyped_digits(double magnitude, int64_t precision, bool is_alternate) {
  std::string text = with_printf('g', precision, is_alternate, magnitude);
  if (text.find_first_of(".e") != std::string::npos) return text;
  if (static_cast<int64_t>(text.size()) < precision || text == "0") return text + ".0";
  text = with_printf('e', precision - 1, false, magnitude);
  const size_t mark = text.find('e');
  const std::string mantissa = text.substr(0, mark);
  const size_t last = mantissa.find('.') == std::string::npos ? mantissa.size()
                                                              : mantissa.find_last_not_of('0') + 1;
  return mantissa.substr(0, mantissa[last - 1] == '.' ? last - 1 : last) + text.substr(mark);
}

std::string float_digits(double magnitude, const FormatSpec& spec) {
  const bool is_upper = spec.type == 'F' || spec.type == 'E' || spec.type == 'G';
  if (!std::isfinite(magnitude)) {
    const std::string name =
        std::isnan(magnitude) ? (is_upper ? "NAN" : "nan") : (is_upper ? "INF" : "inf");
    return name + (spec.type == '%' ? "%" : "");
  }
  const int64_t precision = spec.precision < 0 ? 6 : spec.precision;
  switch (spec.type) {
    case '%':
      return with_printf('f', precision, spec.is_alternate, magnitude * 100) + "%";
    case 0: {
      if (spec.precision < 0) return float_text(magnitude);
      return untyped_digits(magnitude, std::max<int64_t>(spec.precision, 1), spec.is_alternate);
    }
    default:
      return with_printf(spec.type == 'n' ? 'g' : spec.type, precision, spec.is_alternate,
                         magnitude);
  }
}

Text formatted_float(Run& run, double value, const FormatSpec& spec) {
  const bool is_negative = std::signbit(value) && !std::isnan(value);
  const std::string digits = grouped(float_digits(std::abs(value), spec), spec.grouping, 3);
  run.charge(4 + digits.size() / 16);  // digits are slow to make, also few of them
  return padded(run, sign_of(is_negative, spec.sign), digits, spec, '>');
}

Text formatted_integer(Run& run, int64_t value, const FormatSpec& spec) {
  if (spec.precision >= 0) fail("Precision not allowed in integer format specifier");
  const uint64_t magnitude =
      value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  struct Base {
    char type;
    int base;
    std::string_view prefix;
  };
  constexpr auto kBases = std::to_array<Base>(
      {{'b', 2, "0b"}, {'o', 8, "0o"}, {'x', 16, "0x"}, {'X', 16, "0X"}, {0, 10, ""}});
  const auto* found = std::ranges::find(kBases, spec.type, &Base::type);
  const auto& [type, base, prefix] = found == kBases.end() ? kBases.back() : *found;
  const std::string digits =
      grouped(digits_of(magnitude, base, type == 'X'), spec.grouping, base == 10 ? 3 : 4);
  return padded(run, sign_of(value < 0, spec.sign) + std::string(spec.is_alternate ? prefix : ""),
                digits, spec, '>');
}

Text formatted_text(Run& run, std::string_view text, const FormatSpec& spec) {
  if (spec.type != 0 && spec.type != 's')
    fail("Unknown format code '", std::string(1, spec.type), "' for a str");
  if (spec.sign != '-' || spec.is_alternate || spec.grouping != 0 || spec.align == '=')
    fail("a str takes no sign, '#', grouping or '=' in its format specification");
  if (spec.precision >= 0) text = text.substr(0, byte_offset(text, spec.precision));
  return padded(run, "", text, spec, '<');
}

}  // namespace

FormatSpec parse_format_spec(std::string_view text) {
  FormatSpec spec;
  size_t at = 0, after_fill = 0;
  if (!text.empty()) {
    const char32_t first = next_code_point(text, after_fill);
    if (after_fill < text.size() && is_align(text[after_fill])) {
      spec.fill = first;
      spec.align = text[after_fill];
      at = after_fill + 1;
    } else if (is_align(text[0])) {
      spec.align = text[at++];
    }
  }
  const auto is_next = [&](std::string_view set) {
    return at < text.size() && set.find(text[at]) != std::string_view::npos;
  };
  if (is_next("+- ")) spec.sign = text[at++];
  if (is_next("#")) spec.is_alternate = text[at++] == '#';
  if (is_next("0")) {
    ++at;
    spec.has_zeros = true;
  }
  if (is_next("0123456789")) spec.width = read_number(text, at, kMaxWidth);
  if (is_next(",_")) spec.grouping = text[at++];
  if (is_next(".")) spec.precision = read_number(text, ++at, kMaxPrecision);
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) fail("Invalid format specifier '", text, "'");
  return spec;
}

Text formatted(Run& run, const Value& value, const FormatSpec& spec) {
  const bool is_integer_type =
      spec.type != 0 && std::string_view("bdoxXn").find(spec.type) != std::string_view::npos;
  const bool is_float_type =
      spec.type != 0 && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
  if (value.is(Type::kString)) return formatted_text(run, run.text_of(value), spec);
  if (value.is(Type::kInt) || value.is(Type::kBool)) {
    if (spec.type == 0 || is_integer_type) {
      if (value.is(Type::kBool) && spec.type == 0)
        return formatted_text(run, to_text(run, value), spec);
      return formatted_integer(run, value.as_integer(), spec);
    }
    if (is_float_type) return formatted_float(run, value.as_number(), spec);
  }
  if (value.is(Type::kFloat) && (spec.type == 0 || spec.type == 'n' || is_float_type))
    return formatted_float(run, value.as_number(), spec);
  fail("format specification of type '", std::string(1, spec.type == 0 ? 's' : spec.type),
       "' does not fit a ", type_name(value));
}

Text padded(Run& run, std::string_view sign, std::string_view body, const FormatSpec& spec,
            char align) {
  const bool pads_inside = spec.align == '=' || (spec.align == 0 && spec.has_zeros && align == '>');
  if (spec.align != 0 && spec.align != '=') align = spec.align;
  const char32_t fill = spec.has_zeros && spec.align == 0 ? U'0' : spec.fill;
  if (pads_inside && spec.grouping != 0 && fill == '0' && spec.width > 0)
    fail("zero padding together with grouping is not supported");
  const int64_t missing = spec.width - count_code_points(sign) - count_code_points(body);
  Text out = run.text();
  const auto fill_up = [&](int64_t count) {
    for (int64_t i = 0; i < count; ++i) append_code_point(out, fill);
  };
  const int64_t all = std::max<int64_t>(missing, 0);
  const int64_t left = align == '<' ? 0 : align == '>' ? all : all / 2;
  if (!pads_inside) fill_up(left);
  out += sign;
  if (pads_inside) fill_up(all);
  out += body;
  if (!pads_inside) fill_up(all - left);
  return out;
}

}  // namespace kvcal::jinja
