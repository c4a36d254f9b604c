#include "recipe/fields.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "core/text.h"

namespace kvcal {
namespace {

// YAML 1.1, as PyYAML resolves it for llm-compressor.
constexpr std::array<std::string_view, 9> kTrue{"true", "True", "TRUE", "yes", "Yes",
                                                "YES",  "on",   "On",   "ON"};
constexpr std::array<std::string_view, 9> kFalse{"false", "False", "FALSE", "no", "No",
                                                 "NO",    "off",   "Off",   "OFF"};

bool is_plain(const YamlNode& node) {
  return node.kind == YamlNode::Kind::kScalar && !node.is_quoted;
}

std::optional<bool> bool_of(const YamlNode& node) {
  if (!is_plain(node)) return std::nullopt;
  if (std::ranges::count(kTrue, node.text) > 0) return true;
  if (std::ranges::count(kFalse, node.text) > 0) return false;
  return std::nullopt;
}

/// The whole text as T; words such as "inf" are not numbers.
template <class T>
std::optional<T> number_of(const YamlNode& node) {
  if (!is_plain(node)) return std::nullopt;
  std::string_view text = node.text;
  if (text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || text.find_first_not_of("0123456789+-.eE") != std::string_view::npos)
    return std::nullopt;
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

[[noreturn]] void fail_kind(const Field& field, const YamlNode& found, std::string_view expected) {
  const bool is_quoted_value = found.kind == YamlNode::Kind::kScalar && found.is_quoted;
  const bool is_string_wanted = expected.find("string") != std::string_view::npos;
  fail_at(found, field.path, ": found ", describe(found), ", expected ", expected,
          is_quoted_value && !is_string_wanted ? " without quotes" : "");
}

std::string string_of(const Field& field, const YamlNode& node, std::string_view expected) {
  const bool is_text = node.kind == YamlNode::Kind::kScalar &&
                       (node.is_quoted || (!bool_of(node) && !number_of<double>(node)));
  if (!is_text || node.text.empty() || node.text.find("{{") != std::string::npos)
    fail_kind(field, node, expected);
  return node.text;
}

}  // namespace

bool is_false(const Field& field) {
  return bool_of(field.value) == false;
}

bool read_bool(const Field& field) {
  if (const auto value = bool_of(field.value)) return *value;
  fail_kind(field, field.value, "true or false");
}

int64_t read_int(const Field& field) {
  if (const auto value = number_of<int64_t>(field.value)) return *value;
  fail_kind(field, field.value, "an integer");
}

double read_number(const Field& field) {
  const auto value = number_of<double>(field.value);
  if (value && std::isfinite(*value)) return *value;
  fail_kind(field, field.value, "a number");
}

std::string read_string(const Field& field) {
  return string_of(field, field.value, "a string");
}

std::vector<std::string> read_strings(const Field& field) {
  if (field.value.kind != YamlNode::Kind::kList) fail_kind(field, field.value, "a list of strings");
  std::vector<std::string> strings;
  for (const YamlNode& item : field.value.items)
    strings.push_back(string_of(field, item, "a string in this list"));
  return strings;
}

Json read_json(const Field& field) {
  const auto part = [&](const std::string& name, const YamlNode& node) {
    return read_json(Field{field.path + name, node, node});
  };
  const YamlNode& node = field.value;
  Json json;
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return nullptr;
    case YamlNode::Kind::kScalar:
      if (const auto value = bool_of(node)) return *value;
      if (const auto value = number_of<int64_t>(node)) return *value;
      if (const auto value = number_of<double>(node); value && std::isfinite(*value)) return *value;
      return node.text;
    case YamlNode::Kind::kList:
      json = Json::array();
      for (size_t i = 0; i < node.items.size(); ++i)
        json.push_back(part("[" + std::to_string(i) + "]", node.items[i]));
      return json;
    case YamlNode::Kind::kMap:
      json = Json::object();
      for (const auto& [key, value] : node.entries) json[key.text] = part("." + key.text, value);
      return json;
  }
  KVCAL_CHECK(false);
}

void check_map(const Field& field) {
  if (field.value.kind != YamlNode::Kind::kMap) fail_found(field, "a map of keys and values");
}

void check_filled_map(const Field& field, std::string_view holds) {
  if (field.value.kind != YamlNode::Kind::kMap || field.value.entries.empty())
    fail_found(field, "a map of ", holds);
}

void fail_unknown_key(const Field& map, const YamlNode& key,
                      const std::vector<std::string>& known) {
  fail_at(key, map.path, ": unknown key ", describe(key), did_you_mean(key.text, known),
          "; known are ", join(known, ", "));
}

}  // namespace kvcal
