#pragma once

#include "core/json.h"
#include "core/registry.h"
#include "recipe/yaml.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvcal {

/// A key of a recipe with its value; path is its name in messages, "kv_cache_scheme.num_bits".
struct Field {
  std::string path;
  const YamlNode& key;
  const YamlNode& value;
};

/// fail() with place and path: "line 6, column 19: kv_cache_scheme.num_bits: ...".
template <class... Parts>
[[noreturn]] void fail_field(const Field& field, const Parts&... parts) {
  fail_at(field.value, field.path, ": ", parts...);
}

/// The same for a value that is not as expected: "...: found 'eight', expected ...".
template <class... Parts>
[[noreturn]] void fail_found(const Field& field, const Parts&... expected) {
  fail_field(field, "found ", describe(field.value), ", expected ", expected...);
}

/// One row of a table of keys: the name of a key, and the function that reads its value into
/// Target.
template <class Target>
struct FieldRow {
  std::string_view name;
  void (*read)(const Field&, Target&);
  std::string_view old_name = {};  ///< still taken, and not told
};

/// Whether the value is null, which counts as absent.
inline bool is_null(const Field& field) {
  return field.value.kind == YamlNode::Kind::kNull;
}

/// Whether the value is an unquoted false, for fields that also take other kinds.
bool is_false(const Field& field);

/// The value as a type. Throws Error with place, path, the value found and the type expected.
/// Quoted numbers and booleans are strings, as in YAML.
bool read_bool(const Field& field);
int64_t read_int(const Field& field);
double read_number(const Field& field);
std::string read_string(const Field& field);
std::vector<std::string> read_strings(const Field& field);
/// The value as JSON, of any type.
Json read_json(const Field& field);

/// Throws Error unless the value is a map.
void check_map(const Field& field);

/// Throws Error unless the value is a map that is not empty.
void check_filled_map(const Field& field, std::string_view holds);

/// Throws Error for a key without a row; the message has the nearest name and all names.
[[noreturn]] void fail_unknown_key(const Field& map, const YamlNode& key,
                                   const std::vector<std::string>& known);

/// Reads every entry of the map with its row.
template <class Target>
void read_fields(const Field& map, std::span<const FieldRow<Target>> rows, Target& target) {
  check_map(map);
  for (const auto& [key, value] : map.value.entries) {
    const FieldRow<Target>* found = nullptr;
    std::vector<std::string> names;
    for (const FieldRow<Target>& row : rows) {
      names.emplace_back(row.name);
      if (row.name == key.text || (!row.old_name.empty() && row.old_name == key.text)) found = &row;
    }
    if (found == nullptr) fail_unknown_key(map, key, names);
    if (found->name != key.text && map.value.find(found->name))
      fail_at(key, map.path, ": ", key.text, " is the old name of ", found->name,
              ", which is given");
    found->read(Field{map.path + "." + key.text, key, value}, target);
  }
}

}  // namespace kvcal
