#include "family/config_reader.h"

namespace kvcal {

ConfigReader::ConfigReader(const Json& file, const Architecture& architecture,
                           std::string_view more_defaults)
    : json_(file), architecture_(architecture) {
  // As in transformers, an explicit null is a value; only an absent key gets the default.
  for (const std::string_view texts : {architecture.defaults, more_defaults}) {
    const Json defaults = parse_json(texts);
    for (const auto& [key, value] : defaults.items())
      if (!json_.contains(std::string(name_of(key)))) json_[key] = value;
  }
}

std::string_view ConfigReader::name_of(std::string_view key) const {
  std::string_view present = key;
  for (const KeyAlias& alias : architecture_.aliases) {
    if (alias.key != key) continue;
    if (find_field(json_, alias.alias)) return alias.alias;
    // A null alias counts only where the key itself is absent.
    if (json_.contains(std::string(alias.alias)) && !json_.contains(std::string(key)))
      present = alias.alias;
  }
  return present;
}

const Json* ConfigReader::find(std::string_view key) const {
  return find_field(json_, name_of(key));
}
std::optional<int64_t> ConfigReader::integer(std::string_view key) const {
  return optional_int(json_, name_of(key));
}
std::optional<double> ConfigReader::number(std::string_view key) const {
  return optional_number(json_, name_of(key));
}
std::optional<bool> ConfigReader::boolean(std::string_view key) const {
  return optional_bool(json_, name_of(key));
}
std::optional<std::string> ConfigReader::string(std::string_view key) const {
  return optional_string(json_, name_of(key));
}

int64_t ConfigReader::size(std::string_view key, int64_t most, int64_t least) const {
  const int64_t value = required_int(json_, name_of(key));
  if (value < least || value > most)
    fail("key '", name_of(key), "' is ", value, ", expected ", least, " to ", most);
  return value;
}

double ConfigReader::positive(std::string_view key) const {
  const double value = required_number(json_, name_of(key));
  if (!(value > 0.0)) fail("key '", name_of(key), "' is ", value, ", expected a positive number");
  return value;
}

}  // namespace kvcal
