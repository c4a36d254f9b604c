#include "engines/key_checks.h"

#include <algorithm>

#include "core/ascii.h"

namespace kvcal {
namespace {

bool is_accepted(std::string_view accepted, const Json& value, bool ignores_case) {
  if (accepted == "a list") return value.is_array();
  if (accepted == "an object") return value.is_object();
  if (accepted == "a text") return value.is_string();
  if (accepted == "true or false") return value.is_boolean();
  const Json wanted = parse_json(accepted);
  if (ignores_case && value.is_string() && wanted.is_string())
    return ascii_lower(value.get<std::string>()) == ascii_lower(wanted.get<std::string>());
  return value == wanted;  // as Python compares: 8.0 is 8
}

/// Null is there, other than for find_field.
const Json* key_of(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(std::string(key));
  return it == object.end() ? nullptr : &*it;
}

}  // namespace

std::string failed_key(const std::vector<KeyCheck>& checks, const Json& object) {
  for (const KeyCheck& check : checks) {
    const Json* value = key_of(object, check.key);
    if (!value && check.may_lack) continue;
    if (!check.waived_by.empty()) {
      const Json* other = key_of(object, check.waived_by);
      if (other && other->is_object() && !other->empty()) continue;
    }
    const auto accepts = [&](std::string_view accepted) {
      return is_accepted(accepted, *value, check.ignores_case);
    };
    if (value && std::ranges::any_of(check.accepted, accepts)) continue;
    std::string accepted;
    for (const std::string_view text : check.accepted)
      accepted += (accepted.empty() ? "" : " or ") + std::string(text);
    return std::string(check.key) + " is " + (value ? value->dump() : "missing") + ", it takes " +
           accepted;
  }
  return {};
}

}  // namespace kvcal
