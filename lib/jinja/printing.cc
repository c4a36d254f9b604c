#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "jinja/text_value.h"
#include "jinja/value_operations.h"

namespace kvcal::jinja {
namespace {

void append_unicode_escape(Text& out, char32_t unit) {
  std::array<char, 8> escape{};
  std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(unit & 0xFFFF));
  out += escape.data();
}

void append_json(Text& out, std::string_view text, bool ensures_ascii) {
  constexpr std::u32string_view kEscaped = U"\"\\\n\r\t\b\f";
  constexpr std::string_view kEscapes = "\"\\nrtbf";
  out += '"';
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
      out += c;
    }
  }
  out += '"';
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
    if (value.is(Type::kList) || (is_json_ && value.is(Type::kTuple)))
      return append_items("[", value.as<List>().items, "]", level);
    if (value.is(Type::kDict)) return append_dict(value.as<Dict>(), level);
    if (append_plain(value)) return;
    if (is_json_) fail("Object of type ", type_name(value), " is not JSON serializable");
    append_other(value);
  }

 private:
  static inline const JsonStyle kRepr{};

  /// A value that both languages have and that holds no others; false for any other.
  bool append_plain(const Value& value) {
    if (value.is_none())
      out_ += is_json_ ? "null" : "None";
    else if (value.is(Type::kBool))
      out_ += is_true(value) ? (is_json_ ? "true" : "True") : (is_json_ ? "false" : "False");
    else if (value.is(Type::kInt))
      out_ += std::to_string(value.as_integer());
    else if (value.is(Type::kFloat))
      out_ += is_json_ ? json_number(value.as_number()) : float_text(value.as_number());
    else if (value.is_string())
      append_string(value);
    else
      return false;
    return true;
  }

  void append_string(const Value& value) {
    if (is_json_) return append_json(out_, run_.text_of(value), style_.ensures_ascii);
    if (value.is_markup()) out_ += "Markup(";
    append_repr(out_, run_.text_of(value));
    if (value.is_markup()) out_ += ')';
  }

  /// A value that only Python has.
  void append_other(const Value& value) {
    if (value.is(Type::kTuple)) {
      const auto& items = value.as<List>().items;
      append_items("(", items, items.size() == 1 ? ",)" : ")", 0);
    } else if (value.is(Type::kDictView)) {
      out_ += type_name(value);
      append_items("([", items_of(run_, value), "])", 0);
    } else if (value.is(Type::kNamespace)) {
      out_ += "<Namespace ";
      append_dict(value.as<Namespace>().attributes, 0);
      out_ += '>';
    } else if (value.is(Type::kRange)) {
      out_ += range_text(value.as<Range>());
    } else if (value.is_undefined()) {
      out_ += "Undefined";
    } else {
      fail("a ", type_name(value), " has no text that could be printed");
    }
  }

  void start_line(size_t level) {
    if (!style_.has_indent) return;
    out_ += '\n';
    out_.repeat(style_.indent, level);
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
    if (!key.is_string()) out_ += '"';
    if (!append_plain(key))
      fail("keys must be str, int, float, bool or None, not ", type_name(key));
    if (!key.is_string()) out_ += '"';
  }

  void append_dict(const Dict& dict, size_t level) {
    if (!style_.sorts_keys) return append_entries(dict.entries, level);
    auto entries = dict.entries;
    std::ranges::stable_sort(
        entries, [&](const auto& a, const auto& b) { return less(run_, a.first, b.first); });
    append_entries(entries, level);
  }

  void append_entries(const std::vector<std::pair<Value, Value>>& entries, size_t level) {
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
  const double size = std::abs(value);
  const bool has_exponent = size != 0 && (size < 1e-4 || size >= 1e16);
  std::array<char, 64> buffer{};
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                    has_exponent ? std::chars_format::scientific : std::chars_format::fixed)
          .ptr;
  std::string text(buffer.data(), end);
  if (!has_exponent && text.find('.') == std::string::npos) text += ".0";
  return text;
}

Text to_text(Run& run, const Value& value) {
  Text out(run);
  print(run, value, out);
  return out;
}

std::string_view text_view(Run& run, const Value& value) {
  return value.is_string() ? run.text_of(value) : run.keep(to_text(run, value));
}

Text to_repr(Run& run, const Value& value) {
  Text out(run);
  ValueWriter(run, out).append(value);
  return out;
}

void print(Run& run, const Value& value, Text& out) {
  if (value.is_undefined()) return;
  if (!value.is_string()) return ValueWriter(run, out).append(value);
  out += run.text_of(value);
}

Text to_json(Run& run, const Value& value, const JsonStyle& style) {
  Text out(run);
  ValueWriter(run, out, &style).append(value);
  return out;
}

}  // namespace kvcal::jinja
