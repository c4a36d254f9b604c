#include "engines/key_checks.h"

#include <algorithm>
#include <iterator>

#include "core/ascii.h"
#include "core/pcre2_regex.h"

namespace kvcal {
namespace {

bool is_text(const Json& value) {
  return value.is_string();
}

/// A text, whose expression, where it is one, can be compiled.
bool is_pattern(const Json& value) {
  if (!value.is_string()) return false;
  const std::string& text = value.get_ref<const std::string&>();
  if (!text.starts_with("re:")) return true;
  try {
    const Pcre2Regex regex(text.substr(3), {.max_heap_kib = 1024});
    return true;
  } catch (const RegexSyntaxError&) {
    return false;
  }
}

bool is_list_of(bool (*is_kind)(const Json&), const Json& value) {
  return value.is_array() && std::ranges::all_of(value, is_kind);
}

bool has_targets(const Json& group) {
  return group.is_object() && group.contains("targets") && group.at("targets").is_array();
}

/// Where there are targets; engines look at no other groups.
bool has_weights(const Json& group) {
  return group.at("targets").empty() ||
         (group.contains("weights") && group.at("weights").is_object());
}

/// Of one class, whose name says so. Source: vLLM 0.32, `CompressedTensorsConfig.from_config`.
bool is_of_attention(const Json& group) {
  if (!has_targets(group) || group.at("targets").size() != 1) return false;
  const Json& target = group.at("targets")[0];
  return target.is_string() && target.get_ref<const std::string&>().ends_with("Attention");
}

/// Null is there, other than for find_field.
const Json* key_of(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(std::string(key));
  return it == object.end() ? nullptr : &*it;
}

bool is_accepted(std::string_view accepted, const Json& value, bool ignores_case) {
  if (accepted == "a list") return value.is_array();
  if (accepted == "a list of texts") return is_list_of(is_text, value);
  if (accepted == "a list of patterns") return is_list_of(is_pattern, value);
  if (accepted == "a group") return has_targets(value);
  if (accepted == "a group with weights") return has_targets(value) && has_weights(value);
  if (accepted == "a group of attention") return is_of_attention(value);
  if (accepted == "an object") return value.is_object();
  if (accepted == "group_0 alone") return value.size() == 1 && key_of(value, "group_0");
  if (accepted == "a text") return value.is_string();
  if (accepted == "true or false") return value.is_boolean();
  const Json wanted = parse_json(accepted);
  if (ignores_case && value.is_string() && wanted.is_string())
    return ascii_lower(value.get<std::string>()) == ascii_lower(wanted.get<std::string>());
  return value == wanted;  // as Python compares: 8.0 is 8
}

struct Found {
  std::string path;
  const Json* value;  ///< nullptr: the object lacks the key
};

/// The values that a check's key names, from `path` of `object` on.
std::vector<Found> values_at(const Json& object, std::string_view key, const std::string& path) {
  const size_t dot = key.find('.');
  const std::string_view first = key.substr(0, dot);
  std::vector<Found> members;
  if (first == "*") {
    for (const auto& [name, value] : object.items()) members.push_back({path + name, &value});
  } else {
    members.push_back({path + std::string(first), key_of(object, first)});
  }
  if (dot == std::string_view::npos) return members;
  std::vector<Found> found;
  for (const Found& member : members)
    if (member.value && member.value->is_object())
      std::ranges::copy(values_at(*member.value, key.substr(dot + 1), member.path + "."),
                        std::back_inserter(found));
  return found;
}

bool has_entries(const Json& object, std::string_view key) {
  const Json* value = key_of(object, key);
  return value && value->is_object() && !value->empty();
}

bool is_waived(const KeyCheck& check, const Json& object) {
  return (!check.waived_by.empty() && has_entries(object, check.waived_by)) ||
         (!check.only_with.empty() && !has_entries(object, check.only_with));
}

bool passes(const KeyCheck& check, const Json* value) {
  if (!value) return check.may_lack;
  return std::ranges::any_of(check.accepted, [&](std::string_view accepted) {
    return is_accepted(accepted, *value, check.ignores_case);
  });
}

}  // namespace

std::string failed_key(const std::vector<KeyCheck>& checks, const Json& object) {
  for (const KeyCheck& check : checks) {
    if (is_waived(check, object)) continue;
    for (const auto& [path, value] : values_at(object, check.key, {})) {
      if (passes(check, value)) continue;
      std::string accepted;
      for (const std::string_view text : check.accepted)
        accepted += (accepted.empty() ? "" : " or ") + std::string(text);
      return path + " is " + (value ? value->dump() : "missing") + ", it takes " + accepted;
    }
  }
  return {};
}

}  // namespace kvcal
