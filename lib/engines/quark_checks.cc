#include "engines/quark_checks.h"

#include <fnmatch.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "engines/key_checks.h"

namespace kvcal {
namespace {

/// The texts of kv_cache_group, as Python goes through it: of a text each character, of an object
/// each key.
std::vector<std::string> group_of(const Json& group) {
  std::vector<std::string> names;
  if (group.is_string())
    for (const char c : group.get_ref<const std::string&>()) names.emplace_back(1, c);
  else if (group.is_object())
    for (const auto& [key, value] : group.items()) names.push_back(key);
  else if (group.is_array())
    for (const Json& entry : group)
      if (entry.is_string()) names.push_back(entry.get<std::string>());
  return names;
}

bool is_named(const std::vector<std::string>& patterns, const std::string& name) {
  return std::ranges::any_of(patterns, [&](const std::string& pattern) {
    return ::fnmatch(pattern.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
  });
}

/// The entries of layer_quant_config that the group names; empty where it names another.
std::vector<Json> entries_of(const Json& layers, const std::vector<std::string>& group,
                             bool by_pattern) {
  std::vector<Json> entries;
  if (!layers.is_object()) return entries;
  if (by_pattern) {
    for (const auto& [name, entry] : layers.items())
      if (is_named(group, name)) entries.push_back(entry);
    return entries;
  }
  for (const std::string& name : group) {
    if (!layers.contains(name)) return {};
    entries.push_back(layers.at(name));
  }
  return entries;
}

std::string output_refusal(const Json& output) {
  for (const auto& [key, wanted] : {std::pair{"dtype", "fp8_e4m3"}, {"qscheme", "per_tensor"}})
    if (value_of(output, key) != wanted)
      return "output_tensors." + std::string(key) + " is " + value_of(output, key).dump() +
             ", it takes '" + wanted + "'";
  return {};
}

/// Of the Linears, which have no scheme unless exclude excepts them.
std::string linears_refusal(const Json& config) {
  // K and V have an entry of their own there and Q has none, so the fused layer has two schemes.
  const Json exclude = value_of(config, "exclude");
  if ((!exclude.is_array() || exclude.empty()) &&
      value_of(value_of(config, "layer_quant_config"), "*q_proj").is_null())
    return "layer_quant_config has entries for K and V and none for Q, which it fuses with them";
  // Names alone do not except all Linears.
  const bool has_weights = !value_of(value_of(config, "global_quant_config"), "weight").is_null();
  const bool has_pattern = std::ranges::any_of(exclude, [](const Json& entry) {
    return entry.is_string() && entry.get_ref<const std::string&>().starts_with("re:");
  });
  if (!has_weights && !has_pattern)
    return "global_quant_config quantizes no weight, and exclude does not except all Linears, of "
           "which it then wants a scheme";
  return {};
}

}  // namespace

std::string quark_refusal(const Json& config, bool by_pattern) {
  const std::vector<std::string> group =
      group_of(value_of(value_of(config, "export"), "kv_cache_group"));
  if (group.empty()) return {};
  const std::vector<Json> entries =
      entries_of(value_of(config, "layer_quant_config"), group, by_pattern);
  const auto has_output = [](const Json& entry) {
    return value_of(entry, "output_tensors").is_object();
  };
  if (entries.empty() || !std::ranges::all_of(entries, has_output))
    return "quantization_config names a kv_cache_group, layer_quant_config has no output_tensors "
           "for it";
  const Json output = value_of(entries.front(), "output_tensors");
  for (const Json& entry : entries)
    if (by_pattern ? value_of(entry, "output_tensors") != output : entry != entries.front())
      return "layer_quant_config quantizes K and V of kv_cache_group in two ways";
  if (std::string failed = output_refusal(output); !failed.empty()) return failed;
  return linears_refusal(config);
}

}  // namespace kvcal
