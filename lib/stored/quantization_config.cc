#include "stored/quantization_config.h"

#include <algorithm>
#include <vector>

#include "core/folder.h"
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

}  // namespace

const StoredForm* form_beside(const fs::path& folder) {
  for (const StoredForm* form : stored_forms())
    if (!form->config_file.empty() && is_there(folder / form->config_file)) return form;
  return nullptr;
}

QuantizationConfig read_quantization_config(const ModelDir& model_dir) {
  const Json* json = find_field(model_dir.config(), "quantization_config");
  if (!json) {
    const StoredForm* form = form_beside(model_dir.path());
    return form ? read_own_file(*form, model_dir.path() / form->config_file) : QuantizationConfig{};
  }
  QuantizationConfig config;
  config.where = (model_dir.path() / "config.json").string() + ": quantization_config";
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

void check_keys(const Json& object, std::span<const std::string_view> known) {
  for (const auto& [key, value] : object.items())
    if (std::ranges::find(known, key) == known.end())
      fail("unknown key '", key, "'", did_you_mean(key, {known.begin(), known.end()}));
}

void check_spelling(const Json& object, std::span<const std::string_view> known) {
  for (const auto& [key, value] : object.items()) {
    if (std::ranges::find(known, key) != known.end()) continue;
    const std::string meant = did_you_mean(key, {known.begin(), known.end()});
    if (!meant.empty()) fail("unknown key '", key, "'", meant);
  }
}

}  // namespace kvcal
