#include "jinja/printing.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "jinja/objects.h"
#include "jinja/python_str.h"

namespace kvcal::jinja {
namespace {

void append_repr(Run& run, const Value& value, std::string& out);

void append_items(Run& run, const std::vector<Value>& items, std::string& out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(run, items[i], out);
  }
}

void append_dict(Run& run, const Dict& dict, std::string& out) {
  out += '{';
  bool is_first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!is_first) out += ", ";
    is_first = false;
    append_repr(run, key, out);
    out += ": ";
    append_repr(run, value, out);
  }
  out += '}';
}

void append_view(Run& run, const Value& value, std::string& out) {
  out += type_name(value);
  out += "([";
  append_items(run, items_of(run, value), out);
  out += "])";
}

void append_range(const Range& range, std::string& out) {
  out += "range(" + std::to_string(range.start) + ", " + std::to_string(range.stop);
  if (range.step != 1) out += ", " + std::to_string(range.step);
  out += ')';
}

/// repr of a value that holds no others.
std::string plain_repr(Run& run, const Value& value) {
  switch (value.type()) {
    case Type::kUndefined:
      return "Undefined";
    case Type::kNone:
      return "None";
    case Type::kBool:
      return value.as_integer() != 0 ? "True" : "False";
    case Type::kInt:
      return std::to_string(value.as_integer());
    case Type::kFloat:
      return float_text(value.as_number());
    case Type::kString:
      run.charge_bytes(value.as_text().size());
      return value.is_markup() ? "Markup(" + repr_of(value.as_text()) + ")"
                               : repr_of(value.as_text());
    case Type::kLoop:
      return loop_repr(run, value);
    case Type::kMacro:
      return macro_repr(value);
    default:
      fail("a ", type_name(value), " has no text that could be printed");
  }
}

void append_repr(Run& run, const Value& value, std::string& out) {
  const Depth depth(run);
  run.charge();
  run.check_size(out.size());
  switch (value.type()) {
    case Type::kList:
      out += '[';
      append_items(run, value.as<List>().items, out);
      out += ']';
      return;
    case Type::kTuple:
      out += '(';
      append_items(run, value.as<List>().items, out);
      out += value.as<List>().items.size() == 1 ? ",)" : ")";
      return;
    case Type::kDict:
      return append_dict(run, value.as<Dict>(), out);
    case Type::kDictView:
      return append_view(run, value, out);
    case Type::kRange:
      return append_range(value.as<Range>(), out);
    case Type::kNamespace:
      out += "<Namespace ";
      append_dict(run, value.as<Namespace>().attributes, out);
      out += '>';
      return;
    default:
      out += plain_repr(run, value);
  }
}

}  // namespace

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 64> buffer{};
  const auto shortest = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                      std::chars_format::scientific);
  const std::string_view text(buffer.data(), static_cast<size_t>(shortest.ptr - buffer.data()));
  const size_t mark = text.find('e');
  int exponent = 0;
  const size_t sign = text[mark + 1] == '+' ? 1 : 0;
  std::from_chars(text.data() + mark + 1 + sign, text.data() + text.size(), exponent);
  std::string result = value < 0 || std::signbit(value) ? "-" : "";
  std::string digits;
  for (const char c : text.substr(0, mark))
    if (c != '.' && c != '-') digits += c;
  if (exponent < -4 || exponent >= 16) {
    result += digits.substr(0, 1);
    if (digits.size() > 1) result += "." + digits.substr(1);
    std::array<char, 16> power{};
    std::snprintf(power.data(), power.size(), "e%c%02d", exponent < 0 ? '-' : '+',
                  std::abs(exponent));
    return result + power.data();
  }
  if (exponent < 0)
    return result + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole)
    return result + digits + std::string(whole - digits.size(), '0') + ".0";
  return result + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string to_text(Run& run, const Value& value) {
  std::string out;
  print(run, value, out);
  return out;
}

std::string_view text_view(Run& run, const Value& value) {
  return value.is_string() ? value.as_text() : run.keep(to_text(run, value));
}

std::string to_repr(Run& run, const Value& value) {
  std::string out;
  append_repr(run, value, out);
  return out;
}

void print(Run& run, const Value& value, std::string& out) {
  if (value.is_undefined()) return;
  if (!value.is_string()) return append_repr(run, value, out);
  run.check_size(out.size() + value.as_text().size());
  run.charge_bytes(value.as_text().size());
  out += value.as_text();
}

}  // namespace kvcal::jinja
