#include "engines/cache_choice.h"

#include <algorithm>
#include <cctype>

#include "core/file.h"
#include "core/folder.h"
#include "core/json_limits.h"
#include "stored/dialect.h"
#include "stored/quantization_config.h"

namespace kvcal {
namespace {

/// A key of an object; null where there is none, and for anything that is no object.
Json value_of(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const Json* value = find_field(object, key);
  return value ? *value : Json();
}

std::string text_of(const Json& object, std::string_view key) {
  const Json value = value_of(object, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// Some multimodal checkpoints keep it in their text_config; old compressed-tensors ones call it
/// compression_config.
Json declared_config(const Json& config) {
  for (const Json& place : {config, value_of(config, "text_config")})
    for (const char* key : {"quantization_config", "compression_config"}) {
      Json value = value_of(place, key);
      if (value.is_object()) return value;
    }
  return nullptr;
}

/// A kv_cache_scheme of ModelOpt's config.json means FP8 where it is static with float codes of 8
/// bits.
bool is_static_fp8(const Json& scheme) {
  return value_of(scheme, "dynamic") == false && value_of(scheme, "num_bits") == 8 &&
         value_of(scheme, "type") == "float";
}

bool is_float_of_8_bits(const Json& scheme) {
  return value_of(scheme, "num_bits") == 8 && value_of(scheme, "type") == "float";
}

bool switches_on(const MethodRules& rules, const CacheDeclaration& declaration, bool is_rocm) {
  switch (rules.cache) {
    case CacheSwitch::kNever:
      return false;
    case CacheSwitch::kScheme:
      return !declaration.scheme.is_null();
    case CacheSwitch::kAcceptedScheme:
      return !declaration.scheme.is_null() && failed_check(rules, declaration.scheme).empty();
    case CacheSwitch::kSchemeOnCuda:
      return is_float_of_8_bits(declaration.scheme) && !is_rocm;
    case CacheSwitch::kModelOptCache:
      return declaration.scheme.is_object() ? is_static_fp8(declaration.scheme)
                                            : declaration.cache_algorithm == "fp8";
    case CacheSwitch::kCacheQuantAlgo:
      return lower(text_of(declaration.config, "kv_cache_quant_algo")) == "fp8";
  }
  return false;
}

/// The check of quark.py: the outputs of K and V are FP8 E4M3 per tensor.
std::string quark_refusal(const CacheDeclaration& declaration) {
  const Json group = value_of(value_of(declaration.config, "export"), "kv_cache_group");
  if (!group.is_array() || group.empty()) return {};
  const Json layers = value_of(declaration.config, "layer_quant_config");
  for (const Json& pattern : group) {
    const Json entry = pattern.is_string() ? value_of(layers, pattern.get<std::string>()) : Json();
    const Json output = value_of(entry, "output_tensors");
    if (!output.is_object())
      return "quantization_config names a kv_cache_group, layer_quant_config has no output_tensors "
             "for it";
    if (text_of(output, "dtype") != "fp8_e4m3")
      return "output_tensors.dtype is '" + text_of(output, "dtype") + "', it takes 'fp8_e4m3'";
    if (text_of(output, "qscheme") != "per_tensor")
      return "output_tensors.qscheme is '" + text_of(output, "qscheme") +
             "', it takes 'per_tensor'";
  }
  // K and V have an entry of their own there and Q has none, so the fused layer has two schemes.
  const Json exclude = value_of(declaration.config, "exclude");
  if ((!exclude.is_array() || exclude.empty()) && value_of(layers, "*q_proj").is_null())
    return "layer_quant_config has entries for K and V and none for Q, which it fuses with them";
  // Names alone do not except all Linears.
  const bool has_weights =
      !value_of(value_of(declaration.config, "global_quant_config"), "weight").is_null();
  const bool has_pattern = std::ranges::any_of(exclude, [](const Json& entry) {
    return entry.is_string() && entry.get_ref<const std::string&>().starts_with("re:");
  });
  if (!has_weights && !has_pattern)
    return "global_quant_config quantizes no weight, and exclude does not except all Linears, of "
           "which it then wants a scheme";
  return {};
}

std::string refusal(const MethodRules& rules, const CacheDeclaration& declaration,
                    const std::string& asked) {
  if (!rules.refusal.empty()) return std::string(rules.refusal);
  if (rules.needs_scheme && declaration.scheme.is_null() && lacks_groups(declaration))
    return "quantization_config has neither a kv_cache_scheme nor config_groups";
  for (const std::string_view key : rules.refuses_null)
    if (declaration.config.is_object() && declaration.config.contains(key) &&
        declaration.config.at(std::string(key)).is_null())
      return std::string(key) + " is null, it takes a list";
  if (rules.needs_algorithm && declaration.algorithm.empty())
    return "quant_algo is null or missing";
  if (rules.refuses_other_schemes)
    if (std::string failed = failed_check(rules, declaration.scheme); !failed.empty())
      return "kv_cache_scheme: " + failed;
  if (declaration.method == "quark" && rules.method == "quark")
    if (std::string failed = quark_refusal(declaration); !failed.empty()) return failed;
  const bool has_scales = rules.method != "compressed-tensors" || !declaration.scheme.is_null();
  if (asked == "fp8_e5m2" && !rules.takes_e5m2 && has_scales)
    return "an FP8 E5M2 cache cannot be asked for with scales in the checkpoint";
  return {};
}

}  // namespace

CacheDeclaration read_declaration(const ModelDir& model_dir, QuantFile quant_file) {
  CacheDeclaration declaration;
  declaration.config = declared_config(model_dir.config());
  declaration.dialect = read_dialect(model_dir);
  const fs::path file = model_dir.path() / kModelOptFileName;
  bool from_file = false;
  const bool is_asked = quant_file == QuantFile::kFirst ||
                        (quant_file == QuantFile::kWithoutConfig && declaration.config.is_null());
  if (is_asked && is_there(file)) {
    declaration.config = in_context(file.string(), [&] {
      Json json = parse_model_json(read_text(file, kSmallFileLimits.max_bytes));
      if (!json.is_object()) fail("it is ", kind_of(json), ", expected an object");
      return json;
    });
    from_file = true;
  }
  const Json inner = value_of(declaration.config, "quantization");
  const Json& fields = inner.is_object() ? inner : declaration.config;
  declaration.method = lower(text_of(declaration.config, "quant_method"));
  if (from_file && declaration.method.empty()) declaration.method = "modelopt";
  declaration.scheme = value_of(fields, "kv_cache_scheme");
  declaration.algorithm = text_of(fields, "quant_algo");
  declaration.cache_algorithm = lower(text_of(fields, "kv_cache_quant_algo"));
  return declaration;
}

bool lacks_groups(const CacheDeclaration& declaration) {
  return value_of(declaration.config, "config_groups").empty();
}

bool lacks_targets(const CacheDeclaration& declaration) {
  const Json ignore = value_of(declaration.config, "ignore");
  return lacks_groups(declaration) && std::ranges::none_of(ignore, [](const Json& entry) {
           return entry == "Linear" || entry == "re:.*";
         });
}

bool declares_weights(const CacheDeclaration& declaration) {
  if (declaration.method == "compressed-tensors") {
    const Json groups = value_of(declaration.config, "config_groups");
    return groups.is_object() && !groups.empty();
  }
  if (declaration.method == "quark")
    return !value_of(value_of(declaration.config, "global_quant_config"), "weight").is_null();
  if (!declaration.method.starts_with("modelopt")) return declaration.method == "fp8";
  // The file's words for modules that stay as they are, and config.json's.
  const Json file = value_of(declaration.config, "quantization");
  const Json left_out =
      file.is_object() ? value_of(file, "exclude_modules") : value_of(declaration.config, "ignore");
  return !left_out.is_array() || std::ranges::find(left_out, Json("*")) == left_out.end();
}

std::string failed_check(const MethodRules& rules, const Json& scheme) {
  if (scheme.is_null()) return {};
  for (const SchemeCheck& check : rules.scheme) {
    const bool is_there = scheme.is_object() && scheme.contains(std::string(check.key));
    const Json* value = is_there ? &scheme.at(std::string(check.key)) : nullptr;
    if (!value && check.may_lack) continue;
    // As Python compares: 8.0 is 8.
    if (value && std::ranges::any_of(check.accepted, [&](std::string_view text) {
          return *value == parse_json(text);
        }))
      continue;
    const std::string found = value ? value->dump() : "missing";
    std::string accepted;
    for (const std::string_view text : check.accepted)
      accepted += (accepted.empty() ? "" : " or ") + std::string(text);
    return std::string(check.key) + " is " + found + ", it takes " + accepted;
  }
  return {};
}

CacheChoice choose_cache(const MethodRules& rules, const CacheDeclaration& declaration,
                         const std::string& asked, bool is_rocm) {
  CacheChoice choice;
  choice.refusal = refusal(rules, declaration, asked);
  choice.reads_scales =
      rules.refuses_other_schemes || rules.scheme.empty() ||
      (!declaration.scheme.is_null() && failed_check(rules, declaration.scheme).empty());
  if (asked != "auto") {
    choice.dtype = asked;
    choice.is_fp8 = asked.starts_with("fp8");
  } else if (switches_on(rules, declaration, is_rocm)) {
    choice.dtype = rules.fp8_name;
    choice.is_fp8 = true;
  }
  return choice;
}

}  // namespace kvcal
