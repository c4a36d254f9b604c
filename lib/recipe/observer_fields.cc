#include "recipe/observer_fields.h"

#include <span>

#include "quant/setting_range.h"

namespace kvcal {
namespace {

/// A setting of an observer.
struct Setting {
  std::string_view name;
  SettingRange range = {};
  bool is_integer = false;
  std::string_view expected = {};
  std::string_view why_not = {};  ///< known to llm-compressor, without use here
};

constexpr Setting kAverageSettings[] = {
    {.name = "averaging_constant",
     .range = kAveragingConstants,
     .expected = "a number over 0 and at most 1: the weight of a new sample"},
};

// Names and defaults: llm-compressor `observers/mse.py`.
constexpr Setting kSearchSettings[] = {
    {.name = "maxshrink",
     .range = kMaxshrinks,
     .expected = "a number over 0 and at most 1: how far the search goes down from the extremes"},
    {.name = "grid",
     .range = kGrids,
     .expected = "a number from 1 to 100000: steps of the search from the extremes to zero"},
    {.name = "norm",
     .range = kNorms,
     .expected = "a number over 0 and at most 100: the power of the error"},
    {.name = "patience",
     .range = kPatiences,
     .is_integer = true,
     .expected = "an integer from 1 to 1000000: steps without gain that end the search"},
    {.name = "expand",
     .range = kExpands,
     .expected = "a number from 1 to 100: where the search begins, in extremes"},
    {.name = "averaging_constant",
     .why_not = "the search sees everything at once, there is no average"},
    {.name = "triton_error_buffer",
     .why_not = "it belongs to llm-compressor's search on a GPU, which ends early"},
};

constexpr Setting kPercentileSettings[] = {
    {.name = "percentile",
     .range = kPercentiles,
     .expected = "a number over 0 and at most 100: how much of what is seen does not clip"},
};

struct ObserverRow {
  std::string_view name;
  RoleReasons why_not = {};
  std::span<const Setting> settings = {};
};

constexpr std::string_view kLastSample = "it keeps only the last sample; 'mse' searches over all";
constexpr std::string_view kWholeWeight = "a weight is known whole; 'mse' searches its best range";
constexpr std::string_view kImportance = "weighing errors by activations is not performed";
constexpr std::string_view kNvfp4 = "it belongs to NVFP4, which is outside FP8";

// A weight is shown once, whole: static_minmax and minmax are memoryless_minmax for it, and mse is
// memoryless_mse. Source: llm-compressor `initialize_observer`. percentile and entropy are ours.
constexpr ObserverRow kObservers[] = {
    {.name = "static_minmax"},
    {.name = "minmax", .settings = kAverageSettings},
    {.name = "memoryless_minmax"},
    {.name = "mse", .settings = kSearchSettings},
    {.name = "memoryless_mse",
     .why_not = {kLastSample, "", kLastSample},
     .settings = kSearchSettings},
    {.name = "percentile", .why_not = {"", kWholeWeight, ""}, .settings = kPercentileSettings},
    {.name = "entropy", .why_not = {"", kWholeWeight, ""}},
    {.name = "imatrix_mse", .why_not = {kImportance, kImportance, kImportance}},
    {.name = "nvfp4_expanded_mse", .why_not = {kNvfp4, kNvfp4, kNvfp4}},
    {.name = "nvfp4_expanded_imatrix", .why_not = {kNvfp4, kNvfp4, kNvfp4}},
    {.name = "fouroversix", .why_not = {kNvfp4, kNvfp4, kNvfp4}},
};

const ObserverRow* find_observer(std::string_view name) {
  for (const ObserverRow& row : kObservers)
    if (row.name == name) return &row;
  return nullptr;
}

std::vector<std::string> names_for(ArgsRole role) {
  std::vector<std::string> names;
  for (const ObserverRow& row : kObservers)
    if (reason_for(row.why_not, role).empty()) names.emplace_back(row.name);
  return names;
}

std::string joined(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return all;
}

/// An integer stays one, as recipe.yaml shows it.
Json read_value(const Field& field, const Setting& setting) {
  const bool is_whole = field.value.text.find_first_not_of("+-0123456789") == std::string::npos;
  if (setting.is_integer || is_whole) return read_int(field);
  return read_number(field);
}

Json read_setting(const Field& field, const Setting& setting) {
  const Json value = read_value(field, setting);
  if (!setting.range.contains(value.get<double>()))
    fail_field(field, "found ", field.value.text, ", expected ", setting.expected);
  return value;
}

}  // namespace

std::string read_observer(const Field& field, ArgsRole role) {
  const std::string found = normalised_name(read_string(field));
  const ObserverRow* row = find_observer(found);
  const std::vector<std::string> names = names_for(role);
  if (row == nullptr)
    fail_field(field, "unknown observer ", describe(field.value), did_you_mean(found, names),
               "; known are ", joined(names));
  const std::string_view why_not = reason_for(row->why_not, role);
  if (!why_not.empty())
    fail_field(field, "found '", found, "', expected one of ", joined(names), ": ", why_not);
  return found;
}

void settle_observer(QuantArgs& args, ArgsRole role,
                     const std::optional<std::string>& from_modifier) {
  if (from_modifier) {
    args.observer = from_modifier;
  } else if (!args.observer && !args.dynamic) {
    args.observer = role == ArgsRole::kWeights ? "memoryless_minmax" : "static_minmax";
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
  const ObserverRow& row = *find_observer(*args.observer);
  // Their average of one is that one.
  const bool is_average_of_one = role == ArgsRole::kWeights && row.name == "minmax";
  if (row.settings.empty() || is_average_of_one)
    fail_at(first, field.path, ": found ", describe(first), ", expected an empty map: observer ",
            row.name, " has no settings", is_average_of_one ? " for weights" : "");
  for (const auto& [key, value] : field.value.entries) {
    const Setting* setting = nullptr;
    std::vector<std::string> names;
    for (const Setting& known : row.settings) {
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
