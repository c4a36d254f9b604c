#include "jinja/printing.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>

#include "jinja/objects.h"
#include "jinja/python_str.h"

namespace kvcal::jinja {
namespace {

void append_unicode_escape(Text& out, char32_t unit) {
  std::array<char, 8> escape{};
  std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(unit & 0xFFFF));
  out += escape.data();
}

Text json_text(Run& run, std::string_view text, bool ensures_ascii) {
  constexpr std::u32string_view kEscaped = U"\"\\\n\r\t\b\f";
  constexpr std::string_view kEscapes = "\"\\nrtbf";
  Text out = run.text("\"");
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (const size_t i = kEscaped.find(c); i != std::u32string_view::npos) {
      out += '\\';
      out += kEscapes[i];
    } else if (c < 0x20 || (ensures_ascii && c > 0x7E && c < 0x10000)) {
      append_unicode_escape(out, c);
    } else if (ensures_ascii && c >= 0x10000) {
      append_unicode_escape(out, 0xD800 + ((c - 0x10000) >> 10));
      append_unicode_escape(out, 0xDC00 + ((c - 0x10000) & 0x3FF));
    } else {
      append_code_point(out, c);
    }
  }
  out += '"';
  return out;
}

std::string json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return float_text(value);
}

std::string range_text(const Range& range) {
  std::string text = "range(" + std::to_string(range.start) + ", " + std::to_string(range.stop);
  if (range.step != 1) text += ", " + std::to_string(range.step);
  return text + ')';
}

/// Writes values as repr does, or with a style as json.dumps does. Source of that: CPython 3.11,
/// Lib/json/encoder.py.
class ValueWriter {
 public:
  ValueWriter(Run& run, Text& out, const JsonStyle* json = nullptr)
      : run_(run), out_(out), is_json_(json != nullptr), style_(json != nullptr ? *json : kRepr) {}

  void append(const Value& value, size_t level = 0) {
    const Depth depth(run_);
    run_.charge();
    run_.check_size(out_.size());
    if (value.is(Type::kList) || (is_json_ && value.is(Type::kTuple)))
      return append_items("[", value.as<List>().items, "]", level);
    if (value.is(Type::kDict)) return append_dict(value.as<Dict>(), level);
    if (const auto text = plain_text(value))
      out_ += *text;
    else if (is_json_)
      fail("Object of type ", type_name(value), " is not JSON serializable");
    else
      append_other(value);
  }

 private:
  static inline const JsonStyle kRepr{};

  /// A value that both languages have and that holds no others.
  std::optional<Text> plain_text(const Value& value) const {
    switch (value.type()) {
      case Type::kNone:
        return run_.text(is_json_ ? "null" : "None");
      case Type::kBool:
        return run_.text(is_true(value) ? (is_json_ ? "true" : "True")
                                        : (is_json_ ? "false" : "False"));
      case Type::kInt:
        return run_.text(std::to_string(value.as_integer()));
      case Type::kFloat:
        return run_.text(is_json_ ? json_number(value.as_number()) : float_text(value.as_number()));
      case Type::kString:
        if (is_json_) return json_text(run_, run_.text_of(value), style_.ensures_ascii);
        return value.is_markup() ? "Markup(" + repr_of(run_, run_.text_of(value)) + ")"
                                 : repr_of(run_, run_.text_of(value));
      default:
        return std::nullopt;
    }
  }

  /// A value that only Python has.
  void append_other(const Value& value) {
    switch (value.type()) {
      case Type::kTuple: {
        const auto& items = value.as<List>().items;
        return append_items("(", items, items.size() == 1 ? ",)" : ")", 0);
      }
      case Type::kDictView:
        out_ += type_name(value);
        return append_items("([", items_of(run_, value), "])", 0);
      case Type::kNamespace:
        out_ += "<Namespace ";
        append_dict(value.as<Namespace>().attributes, 0);
        out_ += '>';
        return;
      case Type::kRange:
        out_ += range_text(value.as<Range>());
        return;
      case Type::kUndefined:
        out_ += "Undefined";
        return;
      case Type::kLoop:
        out_ += loop_repr(run_, value);
        return;
      case Type::kMacro:
        out_ += macro_repr(run_, value);
        return;
      default:
        fail("a ", type_name(value), " has no text that could be printed");
    }
  }

  void start_line(size_t level) {
    if (!style_.has_indent) return;
    run_.check_size(out_.size() + level * style_.indent.size());
    out_ += '\n';
    for (size_t i = 0; i < level && !style_.indent.empty(); ++i) out_ += style_.indent;
  }

  void append_items(std::string_view open, const Values& items, std::string_view close,
                    size_t level) {
    out_ += open;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      start_line(level + 1);
      append(items[i], level + 1);
    }
    if (!items.empty()) start_line(level);
    out_ += close;
  }

  void append_key(const Value& key) {
    if (!is_json_) return append(key);
    const auto text = plain_text(key);
    if (!text) fail("keys must be str, int, float, bool or None, not ", type_name(key));
    out_ += key.is_string() ? *text : '"' + *text + '"';
  }

  void append_dict(const Dict& dict, size_t level) {
    if (!style_.sorts_keys) return append_entries(dict.entries, level);
    auto entries = dict.entries;
    sort_stably(run_, entries,
                [&](const auto& a, const auto& b) { return less(run_, a.first, b.first); });
    append_entries(entries, level);
  }

  void append_entries(const Vector<std::pair<Value, Value>>& entries, size_t level) {
    out_ += '{';
    bool is_first = true;
    for (const auto& [key, value] : entries) {
      if (!is_first) out_ += style_.item_separator;
      is_first = false;
      start_line(level + 1);
      append_key(key);
      out_ += style_.key_separator;
      append(value, level + 1);
    }
    if (!entries.empty()) start_line(level);
    out_ += '}';
  }

  Run& run_;
  Text& out_;
  bool is_json_;
  const JsonStyle& style_;
};

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

Text to_text(Run& run, const Value& value) {
  Text out = run.text();
  print(run, value, out);
  return out;
}

std::string_view text_view(Run& run, const Value& value) {
  return value.is_string() ? run.text_of(value) : run.keep(to_text(run, value));
}

Text to_repr(Run& run, const Value& value) {
  Text out = run.text();
  ValueWriter(run, out).append(value);
  return out;
}

void print(Run& run, const Value& value, Text& out) {
  if (value.is_undefined()) return;
  if (!value.is_string()) return ValueWriter(run, out).append(value);
  run.check_size(out.size() + value.text_size());
  out += run.text_of(value);
}

Text to_json(Run& run, const Value& value, const JsonStyle& style) {
  Text out = run.text();
  ValueWriter(run, out, &style).append(value);
  return out;
}

}  // namespace kvcal::jinja
