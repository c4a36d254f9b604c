#include "recipe/observer_fields.h"

#include "core/join.h"

namespace kvcal {
namespace {

/// Reads a value; an integer stays an integer, for recipe.yaml.
Json read_value(const Field& field, const ObserverSetting& setting) {
  const bool is_whole = field.value.text.find_first_not_of("+-0123456789") == std::string::npos;
  if (setting.is_integer || is_whole) return read_int(field);
  return read_number(field);
}

Json read_setting(const Field& field, const ObserverSetting& setting) {
  const Json value = read_value(field, setting);
  if (!setting.range.contains(value.get<double>()))
    fail_field(field, "found ", field.value.text, ", expected ", setting.expected);
  return value;
}

}  // namespace

std::string read_observer(const Field& field, ArgsRole role) {
  const std::string found = normalised_name(read_string(field));
  const ObserverRow* row = observers().find(found);
  const std::vector<std::string> names = observers_for(role);
  if (row == nullptr)
    fail_field(field, "unknown observer ", describe(field.value), did_you_mean(found, names),
               "; known are ", join(names, ", "));
  const std::string_view why_not = reason_for(row->why_not, role);
  if (!why_not.empty())
    fail_field(field, "found '", found, "', expected one of ", join(names, ", "), ": ", why_not);
  return found;
}

void settle_observer(QuantArgs& args, ArgsRole role,
                     const std::optional<std::string>& from_modifier) {
  if (from_modifier) {
    args.observer = from_modifier;
  } else if (!args.observer && !args.dynamic) {
    args.observer = default_observer(role);
  }
}

Json read_observer_kwargs(const Field& field, ArgsRole role, const QuantArgs& args) {
  check_map(field);
  Json settings = Json::object();
  if (field.value.entries.empty()) return settings;
  const YamlNode& first = field.value.entries.front().key;
  if (!args.observer)
    fail_at(first, field.path, ": found ", describe(first),
            ", expected an empty map: dynamic scales have no observer");
  const ObserverRow& row = observers().at(*args.observer);
  const bool is_without_weights = role == ArgsRole::kWeights && !row.has_weight_settings;
  if (row.settings.empty() || is_without_weights)
    fail_at(first, field.path, ": found ", describe(first), ", expected an empty map: observer ",
            *args.observer, " has no settings", is_without_weights ? " for weights" : "");
  for (const auto& [key, value] : field.value.entries) {
    const ObserverSetting* setting = nullptr;
    std::vector<std::string> names;
    for (const ObserverSetting& known : row.settings) {
      if (known.why_not.empty()) names.emplace_back(known.name);
      if (known.name == key.text) setting = &known;
    }
    if (setting == nullptr) fail_unknown_key(field, key, names);
    if (!setting->why_not.empty())
      fail_at(key, field.path, ": ", describe(key), " has no use here: ", setting->why_not);
    settings[key.text] = read_setting({field.path + "." + key.text, key, value}, *setting);
  }
  return settings;
}

}  // namespace kvcal
