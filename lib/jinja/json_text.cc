#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "jinja/objects.h"
#include "jinja/printing.h"
#include "jinja/python_str.h"

namespace kvcal::jinja {
namespace {

void append_unicode_escape(std::string& out, char32_t unit) {
  std::array<char, 8> escape{};
  std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(unit & 0xFFFF));
  out += escape.data();
}

void append_json_text(std::string_view text, bool ensures_ascii, std::string& out) {
  out += '"';
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    switch (c) {
      case '"':
        out += "\\\"";
        continue;
      case '\\':
        out += "\\\\";
        continue;
      case '\n':
        out += "\\n";
        continue;
      case '\r':
        out += "\\r";
        continue;
      case '\t':
        out += "\\t";
        continue;
      case '\b':
        out += "\\b";
        continue;
      case '\f':
        out += "\\f";
        continue;
      default:
        break;
    }
    if (c < 0x20 || (ensures_ascii && c > 0x7E && c < 0x10000)) {
      append_unicode_escape(out, c);
    } else if (ensures_ascii && c >= 0x10000) {
      append_unicode_escape(out, 0xD800 + ((c - 0x10000) >> 10));
      append_unicode_escape(out, 0xDC00 + ((c - 0x10000) & 0x3FF));
    } else {
      utf8::append(out, c);
    }
  }
  out += '"';
}

/// Source: CPython 3.11, Lib/json/encoder.py.
class JsonWriter {
 public:
  JsonWriter(Run& run, const JsonStyle& style) : run_(run), style_(style) {}

  std::string write(const Value& value) {
    append(value, 0);
    return std::move(out_);
  }

 private:
  void append(const Value& value, size_t level) {
    const Depth depth(run_);
    run_.charge();
    run_.check_size(out_.size());
    switch (value.type()) {
      case Type::kNone:
        out_ += "null";
        return;
      case Type::kBool:
        out_ += value.as_integer() != 0 ? "true" : "false";
        return;
      case Type::kInt:
        out_ += std::to_string(value.as_integer());
        return;
      case Type::kFloat:
        out_ += number(value.as_number());
        return;
      case Type::kString:
        run_.charge_bytes(value.as_text().size());
        return append_json_text(value.as_text(), style_.ensures_ascii, out_);
      case Type::kList:
      case Type::kTuple:
        return append_list(value.as<List>().items, level);
      case Type::kDict:
        return append_dict(value.as<Dict>(), level);
      default:
        fail("Object of type ", type_name(value), " is not JSON serializable");
    }
  }

  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return float_text(value);
  }

  void start_line(size_t level) {
    if (!style_.has_indent) return;
    run_.check_size(out_.size() + level * style_.indent.size());
    out_ += '\n';
    for (size_t i = 0; i < level; ++i) out_ += style_.indent;
  }

  void append_list(const std::vector<Value>& items, size_t level) {
    if (items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      start_line(level + 1);
      append(items[i], level + 1);
    }
    start_line(level);
    out_ += ']';
  }

  std::string key_text(const Value& key) const {
    switch (key.type()) {
      case Type::kString:
        return std::string(key.as_text());
      case Type::kNone:
        return "null";
      case Type::kBool:
        return key.as_integer() != 0 ? "true" : "false";
      case Type::kInt:
        return std::to_string(key.as_integer());
      case Type::kFloat:
        return number(key.as_number());
      default:
        fail("keys must be str, int, float, bool or None, not ", type_name(key));
    }
  }

  void append_dict(const Dict& dict, size_t level) {
    if (dict.entries.empty()) {
      out_ += "{}";
      return;
    }
    auto entries = dict.entries;
    if (style_.sorts_keys)
      std::stable_sort(entries.begin(), entries.end(),
                       [&](const auto& a, const auto& b) { return less(run_, a.first, b.first); });
    out_ += '{';
    bool is_first = true;
    for (const auto& [key, value] : entries) {
      if (!is_first) out_ += style_.item_separator;
      is_first = false;
      start_line(level + 1);
      append_json_text(key_text(key), style_.ensures_ascii, out_);
      out_ += style_.key_separator;
      append(value, level + 1);
    }
    start_line(level);
    out_ += '}';
  }

  Run& run_;
  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

std::string to_json(Run& run, const Value& value, const JsonStyle& style) {
  return JsonWriter(run, style).write(value);
}

}  // namespace kvcal::jinja
