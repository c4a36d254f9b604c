#include "stored/quantization_config.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "core/folder.h"
#include "core/json_limits.h"
#include "core/registry.h"

namespace kvcal {
namespace {

constexpr std::string_view kModelOptName = "hf_quant_config.json";

/// nullopt: another.
std::optional<QuantForm> form_of(std::string_view method) {
  if (method == "compressed-tensors") return QuantForm::kCompressedTensors;
  if (method == "fp8") return QuantForm::kFp8;
  if (method == "quark") return QuantForm::kQuark;
  // "modelopt", and vLLM's "modelopt_fp4", "modelopt_mixed", ...; quant_algo tells them apart.
  if (method.starts_with("modelopt")) return QuantForm::kModelOpt;
  return std::nullopt;
}

QuantForm read_form(const Json& config) {
  const std::string method = required_string(config, "quant_method");
  if (const auto form = form_of(method)) return *form;
  const std::vector<std::string> known{"compressed-tensors", "fp8", "modelopt", "quark"};
  fail("key 'quant_method' is '", method, "', which is not read", did_you_mean(method, known),
       "; expected compressed-tensors, fp8, modelopt or quark");
}

QuantizationConfig from_modelopt_file(const fs::path& file) {
  QuantizationConfig config{
      .form = QuantForm::kModelOpt, .is_nested = true, .where = file.string()};
  in_context(config.where, [&] {
    const Json json = parse_model_json(read_text(file, kSmallFileLimits.max_bytes));
    const Json* inner = find_field(json, "quantization");
    if (!inner || !inner->is_object()) fail_missing("quantization", "an object");
    config.json = *inner;
  });
  return config;
}

}  // namespace

QuantizationConfig read_quantization_config(const ModelDir& model_dir) {
  const Json* json = find_field(model_dir.config(), "quantization_config");
  if (!json) {
    const fs::path file = model_dir.path() / kModelOptName;
    return is_there(file) ? from_modelopt_file(file) : QuantizationConfig{};
  }
  QuantizationConfig config;
  config.where = (model_dir.path() / "config.json").string() + ": quantization_config";
  in_context(config.where, [&] {
    if (!json->is_object()) fail("found ", kind_of(*json), ", expected an object");
    config.form = read_form(*json);
    const Json* inner =
        config.form == QuantForm::kModelOpt ? find_field(*json, "quantization") : nullptr;
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
