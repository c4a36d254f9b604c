#include "jinja/literals.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "core/error.h"
#include "jinja/python_str.h"

namespace kvcal::jinja {
namespace {

bool is_digit_of(char c, int base) {
  if (base == 16 && (((c | 0x20) >= 'a') && ((c | 0x20) <= 'f'))) return true;
  return c >= '0' && c < '0' + (base < 10 ? base : 10);
}

/// Bytes of digits from at on, where one '_' may stand before each digit (not before the first
/// unless may_start_with_underscore). Nothing found: 0.
size_t digits_length(std::string_view text, size_t at, int base, bool may_start_with_underscore) {
  size_t end = at;
  while (end < text.size()) {
    size_t next = end;
    if (text[next] == '_' && (end > at || may_start_with_underscore)) ++next;
    if (next >= text.size() || !is_digit_of(text[next], base)) break;
    end = next + 1;
  }
  return end - at;
}

std::string without_underscores(std::string_view literal) {
  std::string digits;
  for (const char c : literal)
    if (c != '_') digits += c;
  return digits;
}

}  // namespace

size_t float_length(std::string_view text) {
  const size_t whole = digits_length(text, 0, 10, false);
  if (whole == 0) return 0;
  size_t end = whole;
  bool has_fraction = false, has_exponent = false;
  if (end < text.size() && text[end] == '.') {
    if (const size_t digits = digits_length(text, end + 1, 10, false); digits > 0) {
      end += 1 + digits;
      has_fraction = true;
    }
  }
  if (end < text.size() && (text[end] | 0x20) == 'e') {
    size_t at = end + 1;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    if (const size_t digits = digits_length(text, at, 10, false); digits > 0) {
      end = at + digits;
      has_exponent = true;
    }
  }
  return has_fraction || has_exponent ? end : 0;
}

size_t integer_length(std::string_view text) {
  if (text.empty() || !is_digit_of(text[0], 10)) return 0;
  if (text[0] != '0') return digits_length(text, 0, 10, false);
  if (text.size() > 1) {
    const char mark = static_cast<char>(text[1] | 0x20);
    const int base = mark == 'b' ? 2 : mark == 'o' ? 8 : mark == 'x' ? 16 : 0;
    if (base != 0)
      if (const size_t digits = digits_length(text, 2, base, true); digits > 0) return 2 + digits;
  }
  return digits_length(text, 0, 1, false);  // zeros
}

int64_t integer_value(std::string_view literal) {
  const std::string digits = without_underscores(literal);
  int base = 10;
  std::string_view number = digits;
  if (digits.size() > 1 && digits[0] == '0') {
    const char mark = static_cast<char>(digits[1] | 0x20);
    base = mark == 'b' ? 2 : mark == 'o' ? 8 : mark == 'x' ? 16 : 10;
    if (base != 10) number.remove_prefix(2);
  }
  int64_t value = 0;
  const auto [end, problem] =
      std::from_chars(number.data(), number.data() + number.size(), value, base);
  if (problem != std::errc{} || end != number.data() + number.size())
    fail("integer ", digits, " is past 64 signed bits");
  return value;
}

double float_value(std::string_view literal) {
  const double value = std::strtod(without_underscores(literal).c_str(), nullptr);
  if (!std::isfinite(value)) fail("number ", literal, " is out of range");
  return value;
}

namespace {

/// The escape at inner[at], just behind its backslash; at moves behind it.
void append_escape(std::string& out, std::string_view inner, size_t& at) {
  const char kind = inner[at++];
  const auto append_number = [&](size_t digits, int base, bool must_be_complete) {
    size_t end = at;
    while (end < inner.size() && end < at + digits && is_digit_of(inner[end], base)) ++end;
    if (must_be_complete && end != at + digits)
      fail("the escape \\", kind, " needs ", digits, " hexadecimal digits");
    uint32_t code_point = 0;
    std::from_chars(inner.data() + at, inner.data() + end, code_point, base);
    if (code_point > 0x10FFFF) fail("the escape \\", kind, " is past the last code point");
    if (code_point >= 0xD800 && code_point <= 0xDFFF)
      fail("the escape \\", kind, " makes half a surrogate pair, which UTF-8 cannot hold");
    utf8::append(out, code_point);
    at = end;
  };
  switch (kind) {
    case '\n':
      return;
    case '\\':
    case '\'':
    case '"':
      out += kind;
      return;
    case 'a':
      out += '\a';
      return;
    case 'b':
      out += '\b';
      return;
    case 'f':
      out += '\f';
      return;
    case 'n':
      out += '\n';
      return;
    case 'r':
      out += '\r';
      return;
    case 't':
      out += '\t';
      return;
    case 'v':
      out += '\v';
      return;
    case 'x':
      return append_number(2, 16, true);
    case 'u':
      return append_number(4, 16, true);
    case 'U':
      return append_number(8, 16, true);
    case 'N':
      fail("escapes by name, \\N{…}, are not supported");
    default:
      break;
  }
  if (is_digit_of(kind, 8)) {
    --at;
    return append_number(3, 8, false);
  }
  out += '\\';
  if (static_cast<unsigned char>(kind) < 0x80) {
    out += kind;
    return;
  }
  // Jinja2 turns non-ASCII into escapes first, whose backslash this one then escapes: "\é" is
  // "\xe9".
  const char32_t c = next_code_point(inner, --at);
  char digits[16];
  std::snprintf(digits, sizeof digits,
                c < 0x100     ? "x%02x"
                : c < 0x10000 ? "u%04x"
                              : "U%08x",
                static_cast<unsigned>(c));
  out += digits;
}

}  // namespace

std::string unescaped(std::string_view inner) {
  std::string out;
  for (size_t at = 0; at < inner.size();) {
    const size_t backslash = inner.find('\\', at);
    out += inner.substr(at, backslash == std::string_view::npos ? backslash : backslash - at);
    if (backslash == std::string_view::npos) break;
    at = backslash + 1;
    append_escape(out, inner, at);
  }
  return out;
}

}  // namespace kvcal::jinja
