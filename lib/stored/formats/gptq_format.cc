#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/registry.h"
#include "core/text.h"
#include "quant/module_target.h"
#include "stored/integer_matrix.h"
#include "stored/quantization_config.h"
#include "stored/stored_format.h"

namespace kvcal {
namespace {

/// The layout's name. Both keys are in use, and the layouts differ in the zero points. Source:
/// GPTQModel 7.7 `BaseQuantizeConfig.from_quant_config`, vLLM 0.32 `auto_gptq.py`.
std::string format_of(const Json& config) {
  const auto own = optional_string(config, "format");
  const auto other = optional_string(config, "checkpoint_format");
  if (own && other && normalised_name(*own) != normalised_name(*other))
    fail("key 'format' is '", *own, "' and key 'checkpoint_format' is '", *other,
         "'; engines differ in which they read");
  const std::string format = own ? *own : other.value_or("gptq");
  const std::string name = normalised_name(format);
  const bool is_marlin = optional_bool(config, "is_marlin_format").value_or(false);
  if ((name != "gptq" && name != "gptq_v2") || is_marlin)
    fail("key '",
         is_marlin ? "is_marlin_format"
         : own     ? "format"
                   : "checkpoint_format",
         "' is ", is_marlin ? "true" : "'" + format + "'",
         ", which is not read; expected gptq or gptq_v2");
  return name;
}

/// Arguments of an entry of the key "dynamic", which overrides rest's; of the whole config where
/// rest has 0 bits.
GptqArgs args_of(const Json& config, GptqArgs rest) {
  const bool needs_all = rest.bits == 0;
  const int64_t bits =
      needs_all || find_field(config, "bits") ? required_int(config, "bits") : rest.bits;
  if (bits != 2 && bits != 3 && bits != 4 && bits != 8)
    fail("key 'bits' is ", bits, ", expected 2, 3, 4 or 8");
  rest.bits = static_cast<int>(bits);
  if (needs_all || find_field(config, "group_size"))
    rest.group = positive_group(config, "group_size");
  rest.needs_index = optional_bool(config, "desc_act").value_or(rest.needs_index);
  if (const auto dtype = optional_string(config, "pack_dtype"); dtype && *dtype != "int32")
    fail("key 'pack_dtype' is '", *dtype, "', which is not read; expected int32");
  return rest;
}

/// Schemes by GPTQModel's key "dynamic", an object of patterns in order: the first that matches the
/// beginning of a module's name counts. "-:" before a pattern leaves modules in 16 bits, "+:" or
/// nothing overrides keys of the config for them. Source: GPTQModel 7.7
/// `_resolve_dynamic_override`, vLLM 0.33 `get_dynamic_override`.
class DynamicSchemes {
 public:
  /// except: names of modules that stay in 16 bits. rest: arguments of modules that no pattern
  /// matches.
  DynamicSchemes(const Json& dynamic, std::vector<std::string> except, const GptqArgs& rest)
      : except_(std::move(except)), rest_(scheme_with(rest)) {
    if (!dynamic.is_object()) fail_kind("dynamic", "an object of patterns", dynamic);
    for (const auto& [written, override] : dynamic.items())
      in_context("dynamic." + written,
                 [&, &written = written, &override = override] { add(written, override, rest); });
  }

  const ModuleScheme* operator()(const ModuleName& module) const {
    if (module.class_name == "Embedding" ||
        is_exception(except_, ExceptionMatch::kParts, module.name))
      return nullptr;
    for (const auto& [pattern, scheme] : rules_)
      if (matches_target(pattern, module.name) ||
          (!module.alias.empty() && matches_target(pattern, module.alias)))
        return scheme ? &*scheme : nullptr;
    return &rest_;
  }

 private:
  static ModuleScheme scheme_with(const GptqArgs& args) {
    ModuleScheme scheme = scheme_of_method("gptq");
    scheme.storage = gptq_integers(args);
    return scheme;
  }

  void add(const std::string& written, const Json& override, const GptqArgs& rest) {
    const bool stays = written.starts_with("-:");
    const std::string pattern =
        "re:" + (stays || written.starts_with("+:") ? written.substr(2) : written);
    check_target(pattern);
    if (stays) {
      rules_.emplace_back(pattern, std::nullopt);
      return;
    }
    if (!override.is_object()) fail("found ", kind_of(override), ", expected an object");
    for (const char* key : {"format", "checkpoint_format", "method", "quant_method"})
      if (find_field(override, key))
        fail("key '", key, "' gives modules another layout, which is not read");
    rules_.emplace_back(pattern, scheme_with(args_of(override, rest)));
  }

  std::vector<std::string> except_;
  ModuleScheme rest_;
  std::vector<std::pair<std::string, std::optional<ModuleScheme>>> rules_;
};

ModuleSchemes read_gptq(const QuantizationConfig& source) {
  const Json& config = source.json;
  check_keys(source, split("quant_method bits group_size desc_act sym lm_head static_groups "
                           "checkpoint_format damp_percent pack_dtype true_sequential "
                           "is_marlin_format dynamic quantization meta modules_to_not_convert "
                           "format method model_name_or_path model_file_base_name",
                           ' '));
  const GptqArgs args =
      args_of(config, {.bits = 0, .stores_less_one = format_of(config) == "gptq"});
  static const Json kNone = Json::object();
  const Json* const dynamic = find_field(config, "dynamic");
  return DynamicSchemes(dynamic ? *dynamic : kNone, strings_of(config, "modules_to_not_convert"),
                        args);
}

}  // namespace

extern constinit const StoredFormat kGptqFormat{
    .name = "gptq",
    .method = "gptq",
    // AutoGPTQ before transformers knew it wrote the file alone.
    .config_file = "quantize_config.json",
    .weight_keys = "bits group_size desc_act format checkpoint_format",
    .read_schemes = read_gptq};

}  // namespace kvcal
