#include "stored/quantization_config.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/folder.h"
#include "core/join.h"
#include "core/json_limits.h"
#include "core/registry.h"
#include "stored/stored_form.h"

namespace kvcal {
namespace {

const StoredForm* read_form(const Json& config) {
  const std::string method = required_string(config, "quant_method");
  if (const StoredForm* form = form_of_method(method)) return form;
  std::vector<std::string> known;
  for (const StoredForm* form : stored_forms())
    if (!form->method.empty()) known.emplace_back(form->method);
  std::string all;
  for (const std::string& one : known)
    all += (all.empty() ? "" : one == known.back() ? " or " : ", ") + one;
  fail("key 'quant_method' is '", method, "', which is not read", did_you_mean(method, known),
       "; expected ", all);
}

QuantizationConfig read_own_file(const StoredForm& form, const fs::path& file) {
  QuantizationConfig config{.form = &form, .is_nested = true, .where = file.string()};
  in_context(config.where, [&] {
    const Json json = parse_model_json(read_text(file, kSmallFileLimits.max_bytes));
    const Json* inner = find_field(json, form.nested_key);
    if (!inner || !inner->is_object()) fail_missing(form.nested_key, "an object");
    config.json = *inner;
  });
  return config;
}

/// A place where a checkpoint may describe its quantization.
struct ConfigPlace {
  std::string where;
  Json json;
};

std::vector<ConfigPlace> places_of(const ModelDir& model_dir) {
  const std::string file = (model_dir.path() / "config.json").string() + ": ";
  std::vector<ConfigPlace> places;
  const auto add = [&](const Json& object, const std::string& prefix) {
    for (const char* key : {"quantization_config", "compression_config"})
      if (const Json* found = find_field(object, key); found && !found->is_null())
        places.push_back({file + prefix + key, *found});
  };
  add(model_dir.config(), "");
  if (const Json* text = find_field(model_dir.config(), "text_config"); text && text->is_object())
    add(*text, "text_config.");
  return places;
}

/// The keys that say how weights are stored, of an object with ModelOpt's keys or config.json's.
Json stored_part(const Json& config) {
  Json part = Json::object();
  if (!config.is_object()) return part;
  const Json* nested = find_field(config, "quantization");
  const Json& keys = nested && nested->is_object() ? *nested : config;
  for (const char* key : {"quant_algo", "group_size"})
    if (const Json* found = find_field(keys, key); found && !found->is_null()) part[key] = *found;
  return part;
}

/// Throws Error where two places disagree: engines differ in which they read.
void check_agreement(const ModelDir& model_dir, const std::vector<ConfigPlace>& places) {
  for (const ConfigPlace& other : places)
    if (sorted_keys(other.json) != sorted_keys(places.front().json))
      fail(other.where, ": differs from ", places.front().where,
           ", and engines differ in which they read");
  const StoredForm* form = form_beside(model_dir.path());
  if (!form || places.empty()) return;
  const fs::path path = model_dir.path() / form->config_file;
  const QuantizationConfig beside = read_own_file(*form, path);
  const Json own = stored_part(places.front().json), its = stored_part(beside.json);
  for (const auto& [key, value] : own.items())
    if (const Json* found = find_field(its, key); found && *found != value)
      fail(path.string(), ": key '", form->nested_key, ".", key, "' is ", found->dump(), ", and ",
           places.front().where, " says ", value.dump(), "; engines differ in which they read");
}

}  // namespace

const StoredForm* form_beside(const fs::path& folder) {
  for (const StoredForm* form : stored_forms())
    if (!form->config_file.empty() && is_there(folder / form->config_file)) return form;
  return nullptr;
}

QuantizationConfig read_quantization_config(const ModelDir& model_dir) {
  const std::vector<ConfigPlace> places = places_of(model_dir);
  check_agreement(model_dir, places);
  if (places.empty()) {
    const StoredForm* form = form_beside(model_dir.path());
    return form ? read_own_file(*form, model_dir.path() / form->config_file) : QuantizationConfig{};
  }
  const Json* json = &places.front().json;
  QuantizationConfig config;
  config.where = places.front().where;
  in_context(config.where, [&] {
    if (!json->is_object()) fail("found ", kind_of(*json), ", expected an object");
    config.form = read_form(*json);
    const std::string_view key = config.form->nested_key;
    const Json* inner = key.empty() ? nullptr : find_field(*json, key);
    config.is_nested = inner != nullptr;
    config.json = inner ? *inner : *json;
  });
  return config;
}

namespace {

/// Whether a value says nothing: transformers and llm-compressor write null for keys of newer or
/// older versions, and empty lists.
bool says_nothing(const Json& value) {
  return value.is_null() || value == "" || (value.is_structured() && value.empty());
}

bool is_known(std::string_view key, std::span<const std::string_view> known) {
  return std::ranges::find(known, key) != known.end();
}

/// The names that forms give to lists of modules that stay in 16 bits, or to the modules that do
/// not.
constexpr std::array<std::string_view, 7> kModuleLists{
    "exclude",         "exclude_modules",       "ignore",
    "ignored_layers",  "llm_int8_skip_modules", "modules_to_not_convert",
    "quantized_layers"};

std::string meant_by(const std::string& key, std::span<const std::string_view> known) {
  return did_you_mean(key, {known.begin(), known.end()});
}

[[noreturn]] void fail_unknown(const std::string& key, const std::string& why) {
  throw UnknownKey("unknown key '" + key + "'" + why);
}

}  // namespace

void check_keys(const QuantizationConfig& config, std::span<const std::string_view> known) {
  std::vector<std::string> unknown;
  for (const auto& [key, value] : config.json.items()) {
    if (is_known(key, known) || says_nothing(value)) continue;
    if (is_known(key, kModuleLists))
      fail_unknown(key, ": a list of modules that quant_method " +
                            std::string(config.form ? config.form->method : "") + " does not have");
    if (const std::string meant = meant_by(key, known); !meant.empty()) fail_unknown(key, meant);
    unknown.push_back("'" + key + "'");
  }
  if (unknown.empty() || !config.warnings) return;
  config.warnings->push_back(config.where + ": unknown " +
                             (unknown.size() == 1 ? "key " : "keys ") + join(unknown, ", ") +
                             (unknown.size() == 1 ? " is" : " are") + " passed over");
}

void check_keys(const Json& object, std::span<const std::string_view> known) {
  for (const auto& [key, value] : object.items())
    if (!is_known(key, known) && !says_nothing(value)) fail_unknown(key, meant_by(key, known));
}

}  // namespace kvcal
