#include "stored/quantization_config.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "core/folder.h"
#include "core/join.h"
#include "core/json_limits.h"
#include "core/registry.h"
#include "family/unread_quantization.h"
#include "stored/stored_form.h"

namespace kvcal {
namespace {

/// " (did you mean 'compressed-tensors'?)" for a method that is written otherwise. Words that are
/// merely near, as hqq and gptq, do not mean the same.
std::string other_spelling(std::string_view method) {
  const auto letters = [](std::string_view word) {
    std::string kept = normalised_name(word);
    std::erase(kept, '_');
    return kept;
  };
  for (const StoredForm* form : stored_forms())
    if (!form->method.empty() && letters(form->method) == letters(method))
      return " (did you mean '" + std::string(form->method) + "'?)";
  return "";
}

const StoredForm* read_form(const Json& config) {
  if (!find_field(config, "quant_method") && find_field(config, "bits") &&
      find_field(config, "group_size"))
    fail(
        "has bits, group_size and no quant_method, as MLX writes them, whose weights are not "
        "read; ",
        kStartElsewhere);
  const std::string method = required_string(config, "quant_method");
  if (const StoredForm* form = form_of_method(method)) return form;
  if (const std::string about = about_unread(method); !about.empty())
    fail("key 'quant_method' is '", method, "', whose weights are not read", about);
  std::vector<std::string> known;
  for (const StoredForm* form : stored_forms())
    if (!form->method.empty()) known.emplace_back(form->method);
  std::string all;
  for (const std::string& one : known)
    all += (all.empty() ? "" : one == known.back() ? " or " : ", ") + one;
  fail("key 'quant_method' is '", method, "', which is not read", other_spelling(method),
       "; expected ", all);
}

/// The config of a form's own file, which may name another form.
QuantizationConfig read_own_file(const StoredForm& form, const fs::path& file) {
  QuantizationConfig config{
      .form = &form, .is_nested = !form.nested_key.empty(), .where = file.string()};
  in_context(config.where, [&] {
    Json json = parse_model_json(read_text(file, kSmallFileLimits.max_bytes));
    if (!json.is_object()) fail("is ", kind_of(json), ", expected an object");
    if (!config.is_nested) {
      if (find_field(json, "quant_method")) config.form = read_form(json);
      config.json = std::move(json);
      return;
    }
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

/// Throws Error unless a key has the same value in both places. where: of the file, of the config.
void check_same(const std::string& key, const Json& in_file, const Json& in_config,
                const std::array<std::string, 2>& where) {
  if (sorted_keys(in_file) == sorted_keys(in_config)) return;
  if (in_file.is_object() && in_config.is_object()) {
    const Json none;
    for (const auto& [name, value] : in_file.items()) {
      const Json* other = find_field(in_config, name);
      check_same(key + "." + name, value, other ? *other : none, where);
    }
    for (const auto& [name, value] : in_config.items())
      if (!find_field(in_file, name)) check_same(key + "." + name, none, value, where);
  }
  fail(where[0], ": key '", key, "' is ", in_file.dump(), ", and ", where[1], " says ",
       in_config.dump(), "; engines differ in which they read");
}

/// Throws Error where two places disagree: engines differ in which they read.
void check_agreement(const std::vector<ConfigPlace>& places) {
  for (const ConfigPlace& other : places)
    if (sorted_keys(other.json) != sorted_keys(places.front().json))
      fail(other.where, ": differs from ", places.front().where,
           ", and engines differ in which they read");
}

/// Adds the keys of weights that only the form's own file has. Throws Error where both have one and
/// disagree.
void add_own_file(const ModelDir& model_dir, QuantizationConfig& config) {
  const StoredForm* form = form_beside(model_dir.path());
  // A file of another form is of weights that config.json describes anew.
  if (!form || form != config.form) return;
  const fs::path path = model_dir.path() / form->config_file;
  const QuantizationConfig beside = read_own_file(*form, path);
  const std::string outer = beside.is_nested ? std::string(form->nested_key) + "." : "";
  for (const std::string_view key : form->weight_keys) {
    const Json *in_file = find_field(beside.json, key), *in_config = find_field(config.json, key);
    if (in_file && in_config)
      check_same(outer + std::string(key), *in_file, *in_config, {path.string(), config.where});
    else if (in_file)
      config.json[std::string(key)] = *in_file;
  }
}

}  // namespace

const StoredForm* form_beside(const fs::path& folder) {
  for (const StoredForm* form : stored_forms())
    if (!form->config_file.empty() && is_there(folder / form->config_file)) return form;
  return nullptr;
}

QuantizationConfig read_quantization_config(const ModelDir& model_dir) {
  const std::vector<ConfigPlace> places = places_of(model_dir);
  const Json* of_mlx = find_field(model_dir.config(), "quantization");
  if (places.empty() && of_mlx && of_mlx->is_object() && find_field(*of_mlx, "group_size"))
    in_context((model_dir.path() / "config.json").string() + ": quantization",
               [&] { return read_form(*of_mlx); });
  check_agreement(places);
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
  add_own_file(model_dir, config);
  return config;
}

std::string near_word(std::string_view word, std::span<const std::string_view> known) {
  const auto digits = [](std::string_view text) {
    std::string kept;
    std::ranges::copy_if(text, std::back_inserter(kept),
                         [](char c) { return c >= '0' && c <= '9'; });
    return kept;
  };
  std::vector<std::string> same;
  for (const std::string_view one : known)
    if (digits(one) == digits(word)) same.emplace_back(one);
  return did_you_mean(word, same);
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
