#include "recipe/yaml_text.h"

#include <array>
#include <cctype>

#include "core/ascii.h"
#include "core/utf8.h"

namespace kvcal {
namespace {

constexpr size_t kWidth = 88;

/// PyYAML reads a number with an exponent as a string unless it has a point and a sign.
std::string yaml_number(const Json& number) {
  std::string text = number.dump();
  const size_t exponent = text.find('e');
  if (exponent != std::string::npos && text.find('.') == std::string::npos)
    text.insert(exponent, ".0");
  return text;
}

/// Flow style under construction.
class FlowText {
 public:
  explicit FlowText(size_t column) : column_(column) {}
  std::string take() { return std::move(text_); }

  void write(const Json& value, size_t indent) {
    if (value.is_object() || value.is_array()) return write_collection(value, indent);
    if (value.is_string()) return put(yaml_string(value.get<std::string>()));
    put(value.is_number() ? yaml_number(value)
                          : value.dump());  // null, true, false: the same words
  }

 private:
  void put(std::string_view text) {
    text_ += text;
    column_ += utf8::length(text);
  }
  void write_collection(const Json& value, size_t indent) {
    put(value.is_object() ? "{" : "[");
    bool is_first = true;
    for (const auto& [key, item] : value.items()) {
      if (!is_first) put(",");
      if (column_ > kWidth) {
        text_ += "\n" + std::string(indent, ' ');
        column_ = indent;
      } else if (!is_first) {
        put(" ");
      }
      is_first = false;
      if (value.is_object()) put(yaml_string(key) + ": ");
      write(item, indent + 2);
    }
    put(value.is_object() ? "}" : "]");
  }

  std::string text_;
  size_t column_;
};

}  // namespace

std::string yaml_string(std::string_view text) {
  constexpr std::array<std::string_view, 10> kWords{"true", "false", "yes", "no", "on",
                                                    "off",  "null",  "y",   "n",  "~"};
  const auto is_plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-' ||
           c == '/';
  };
  const std::string lower = ascii_lower(std::string(text));
  const bool starts_plain = !text.empty() && std::isalpha(static_cast<unsigned char>(text[0]));
  if (starts_plain && std::all_of(text.begin(), text.end(), is_plain) &&
      std::find(kWords.begin(), kWords.end(), lower) == kWords.end())
    return std::string(text);
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::any_of(text.begin(), text.end(), is_control)) return Json(text).dump(-1, ' ', true);
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "''" : std::string(1, c);
  return quoted + "'";
}

std::string yaml_flow(const Json& value, size_t column, size_t indent) {
  FlowText text(column + 1);
  text.write(value, indent);
  return " " + text.take();
}

}  // namespace kvcal
