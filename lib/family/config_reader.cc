#include "family/config_reader.h"

#include <algorithm>
#include <array>

#include "family/neutral_keys.h"

namespace kvcal {
namespace {

/// The number where value is a list of one number for each layer, all the same, as in Hunyuan's
/// moe_topk; nullptr: it is not.
const Json* number_of_all_layers(const Json* value) {
  if (!value || !value->is_array() || value->empty() || !value->front().is_number_integer())
    return nullptr;
  const auto is_same = [&](const Json& entry) { return entry == value->front(); };
  return std::ranges::all_of(*value, is_same) ? &value->front() : nullptr;
}

/// The value of "outer.key", the name of a key in an object; nullptr: there is none.
const Json* find_nested(const Json& file, std::string_view name) {
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos) return nullptr;
  const auto outer = file.find(name.substr(0, dot));
  if (outer == file.end() || !outer->is_object()) return nullptr;
  const auto found = outer->find(name.substr(dot + 1));
  return found == outer->end() ? nullptr : &*found;
}

/// rope_scaling is the older name of rope_parameters: what the file says under the one takes the
/// place of a default of the other. An empty rope_scaling says nothing.
bool has_other_rope(const Json& file, std::string_view key) {
  if (key == "rope_scaling") return find_field(file, "rope_parameters") != nullptr;
  const Json* scaling = key == "rope_parameters" ? find_field(file, "rope_scaling") : nullptr;
  return scaling && !scaling->empty();
}

}  // namespace

ConfigReader::ConfigReader(const Json& file, const Architecture& architecture,
                           std::string_view more_defaults)
    : json_(file), architecture_(architecture) {
  for (const KeyAlias& alias : architecture.aliases)
    if (const Json* nested = find_nested(file, alias.alias)) json_[alias.alias] = *nested;
  // As in transformers, an explicit null is a value; only an absent key gets the default. The ropes
  // of a class take the place of null.
  for (const std::string_view rope : {"rope_parameters", "rope_scaling"})
    if (const auto found = json_.find(rope); found != json_.end() && found->is_null())
      json_.erase(found);
  for (const std::string_view texts : {architecture.defaults, more_defaults}) {
    const Json defaults = parse_json(texts);
    for (const auto& [key, value] : defaults.items()) {
      if (has_other_rope(file, key) || json_.contains(std::string(name_of(key)))) continue;
      json_[key] = value;
      defaulted_.insert(key);
    }
  }
}

std::string_view ConfigReader::name_of(std::string_view key) const {
  std::string_view present = key;
  knows({key});
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
bool ConfigReader::has_default(std::string_view key) const {
  const Json defaults = parse_json(architecture_.defaults);
  return defaults.contains(key) ||
         std::ranges::any_of(architecture_.aliases, [&](const KeyAlias& alias) {
           return alias.key == key && defaults.contains(alias.alias);
         });
}
std::optional<int64_t> ConfigReader::integer(std::string_view key) const {
  if (const Json* number = number_of_all_layers(find(key))) return number->get<int64_t>();
  return optional_int(json_, name_of(key));
}
std::optional<double> ConfigReader::number(std::string_view key) const {
  return number_of(json_, key, name_of(key));
}
std::optional<bool> ConfigReader::boolean(std::string_view key) const {
  return optional_bool(json_, name_of(key));
}
std::optional<std::string> ConfigReader::string(std::string_view key) const {
  return optional_string(json_, name_of(key));
}

int64_t ConfigReader::size(std::string_view key, int64_t most, int64_t least) const {
  const auto found = integer(key);
  const int64_t value = found ? *found : required_int(json_, name_of(key));
  if (value < least || value > most)
    fail("key '", name_of(key), "' is ", value, ", expected ", least, " to ", most);
  return value;
}

double ConfigReader::required_number(std::string_view key) const {
  const auto value = number(key);
  if (!value) fail_missing(name_of(key), "a number");
  return *value;
}

std::optional<double> ConfigReader::number(const NumberKey& row) const {
  const std::string_view name = name_of(row.key);
  const std::optional<double> value = optional_number(json_, name);
  if (value) check_number(name, *value, row.range);
  return value;
}

void ConfigReader::knows(std::initializer_list<std::string_view> keys) const {
  for (const std::string_view key : keys) {
    asked_.emplace(key);
    for (const KeyAlias& alias : architecture_.aliases)
      if (alias.key == key) asked_.emplace(alias.alias);
  }
}

namespace {

/// Keys of rope_scaling and rope_parameters, of any type of rope.
constexpr auto kRopeKeys = std::to_array<std::string_view>({
    "attention_factor",
    "beta_fast",
    "beta_slow",
    "factor",
    "full_attention",
    "high_freq_factor",
    "llama_4_scaling_beta",
    "long_factor",
    "long_mscale",
    "low_freq_factor",
    "max_position_embeddings",
    "mrope_interleaved",
    "mrope_section",
    "mscale",
    "mscale_all_dim",
    "original_max_position_embeddings",
    "partial_rotary_factor",
    "rope_theta",
    "rope_type",
    "short_factor",
    "short_mscale",
    "sliding_attention",
    "truncate",
    "type",
    "xdrope_section",
});

void add_unread_rope_keys(const std::string& name, const Json& rope, bool reads_alpha,
                          std::vector<std::string>& unread) {
  for (const auto& [key, value] : rope.items()) {
    if (value.is_object()) add_unread_rope_keys(name + "." + key, value, reads_alpha, unread);
    const bool is_read =
        std::ranges::find(kRopeKeys, key) != kRopeKeys.end() || (reads_alpha && key == "alpha");
    if (!value.is_null() && !is_read) unread.push_back(name + "." + key);
  }
}

}  // namespace

bool ConfigReader::is_unread(const std::string& name, std::string_view key,
                             const Json& value) const {
  const auto& known = architecture_.known_keys;
  return !asked_.contains(name) && std::ranges::find(known, name) == known.end() &&
         !is_neutral_key(key, value);
}

std::vector<std::string> ConfigReader::unread_keys(const Json& file) const {
  std::vector<std::string> unread;
  for (const auto& [key, value] : file.items()) {
    const bool is_rope = key == "rope_scaling" || key == "rope_parameters";
    if (is_rope && value.is_object() && asked_.contains(key))
      add_unread_rope_keys(key, value, architecture_.has_rope_alpha, unread);
    const std::string inside = key + ".";
    const auto names_inside = [&](const KeyAlias& alias) {
      return alias.alias.starts_with(inside);
    };
    if (value.is_object() && std::ranges::any_of(architecture_.aliases, names_inside)) {
      for (const auto& [name, nested] : value.items())
        if (is_unread(inside + name, name, nested)) unread.push_back(inside + name);
    } else if (is_unread(key, key, value)) {
      unread.push_back(key);
    }
  }
  return unread;
}

void check_one_a_layer(std::string_view key, const Json& list, int64_t num_layers) {
  if (!list.is_array()) fail_kind(key, "a list with one entry a layer", list);
  if (std::ssize(list) != num_layers)
    fail("key '", key, "' has ", list.size(), " entries, expected ", num_layers, ", one a layer");
}

bool has_row(const Architecture& architecture, Role role) {
  return std::ranges::any_of(architecture.layer_tensors,
                             [&](const TensorRow& row) { return row.role == role; });
}

}  // namespace kvcal
