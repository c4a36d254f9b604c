#include "core/json.h"
#include "recipe/recipe.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <string_view>

namespace kvcal {
namespace {

/// Plain where YAML 1.1 reads the same string back, else in single quotes, or double ones where
/// only an escape will do.
std::string yaml_string(std::string_view text) {
  constexpr std::array<std::string_view, 10> kWords{"true", "false", "yes", "no", "on",
                                                    "off",  "null",  "y",   "n",  "~"};
  const auto is_plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-' ||
           c == '/';
  };
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
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

/// PyYAML takes a number with an exponent for a string unless it has a point and a sign.
std::string yaml_number(const Json& number) {
  std::string text = number.dump();
  const size_t exponent = text.find('e');
  if (exponent != std::string::npos && text.find('.') == std::string::npos)
    text.insert(exponent, ".0");
  return text;
}

std::string yaml_value(const Json& value) {
  if (value.is_string()) return yaml_string(value.get<std::string>());
  if (value.is_number()) return yaml_number(value);
  if (value.is_object()) {
    std::string text;
    for (const auto& [key, item] : value.items())
      text += (text.empty() ? "" : ", ") + yaml_string(key) + ": " + yaml_value(item);
    return "{" + text + "}";
  }
  if (value.is_array()) {
    std::string text;
    for (const Json& item : value) text += (text.empty() ? "" : ", ") + yaml_value(item);
    return "[" + text + "]";
  }
  return value.dump();  // null, true, false: the same words
}

std::string yaml_list(const std::vector<std::string>& strings) {
  return yaml_value(Json(strings));
}

}  // namespace

std::string to_yaml(const Recipe& recipe) {
  // llm-compressor's default, which it writes out.
  const std::vector<std::string> linear{"Linear"};
  const Modifier& modifier = recipe.modifiers.front();
  std::string text = yaml_string(modifier.stage + "_stage") + ":\n";
  text += "  " + yaml_string(modifier.group + "_modifiers") + ":\n";
  text += "    QuantizationModifier:\n";
  text +=
      "      targets: " + yaml_list(modifier.targets.empty() ? linear : modifier.targets) + "\n";
  text += "      ignore: " + yaml_list(modifier.ignore) + "\n";
  text += "      kv_cache_scheme:\n";
  const Json scheme = to_json(*modifier.kv_cache_scheme);
  for (const char* key :
       {"num_bits", "type", "symmetric", "group_size", "strategy", "block_structure", "dynamic",
        "actorder", "scale_dtype", "zp_dtype", "observer", "observer_kwargs"})
    text += "        " + std::string(key) + ": " + yaml_value(scheme.at(key)) + "\n";
  text += "      bypass_divisibility_checks: false\n";
  text += "      requires_calibration_data: true\n";
  return text;
}

}  // namespace kvcal
