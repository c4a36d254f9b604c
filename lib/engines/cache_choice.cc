#include "engines/cache_choice.h"

#include <algorithm>
#include <iterator>

#include "core/file.h"
#include "core/folder.h"
#include "core/json.h"
#include "core/text.h"
#include "engines/quark_checks.h"
#include "quant/module_target.h"
#include "stored/kv_scales.h"
#include "stored/quantization_config.h"

namespace kvcal {
namespace {

constexpr std::string_view kExpression = "re:";

std::string text_of(const Json& object, std::string_view key) {
  const Json value = value_of(object, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

/// Some multimodal checkpoints keep it in their text_config; old compressed-tensors ones call it
/// compression_config.
Json declared_config(const Json& config, const ConfigReading& reading) {
  const Json inner = reading.reads_text_config ? value_of(config, "text_config") : Json();
  for (const Json& place : {config, inner})
    for (const char* key : {"quantization_config", "compression_config"}) {
      if (key == std::string_view("compression_config") && !reading.reads_compression_config)
        continue;
      Json value = value_of(place, key);
      if (value.is_object()) return value;
    }
  return nullptr;
}

/// hf_quant_config.json, where the engine asks for it; null otherwise.
Json read_quant_file(const ModelDir& model_dir, const ConfigReading& reading, bool has_config) {
  const fs::path file = model_dir.path() / reading.file_name;
  const bool is_asked = reading.quant_file == QuantFile::kFirst ||
                        (reading.quant_file == QuantFile::kWithoutConfig && !has_config);
  if (!is_asked || !is_there(file)) return nullptr;
  return in_context(file.string(), [&] {
    Json json = parse_model_json(read_text(file, kSmallFileLimits.max_bytes));
    if (!json.is_object()) fail("it is ", kind_of(json), ", expected an object");
    return json;
  });
}

/// The quant_method of a configuration of ModelOpt that has none, or a general one.
void name_by_algorithm(CacheDeclaration& declaration, const ConfigReading& reading,
                       bool from_file) {
  // Of a producer's file, that of the object "quantization" alone.
  const std::string written =
      reading.needs_producer ? text_of(value_of(declaration.config, "quantization"), "quant_algo")
                             : declaration.algorithm;
  const std::string algorithm = reading.algorithm_has_case ? written : ascii_upper(written);
  const auto rule = std::ranges::find(reading.algorithms, algorithm,
                                      [](const AlgorithmRule& row) { return row.algorithm; });
  if (rule != reading.algorithms.end()) {
    declaration.method = rule->method;
  } else if (reading.refuses_other_algorithms && !written.empty() && declaration.refusal.empty()) {
    declaration.refusal = "it does not know ModelOpt's quant_algo " + written + " in " +
                          (from_file ? "hf_quant_config.json" : "config.json");
  } else if (from_file && declaration.method.empty() && !reading.needs_producer) {
    declaration.config = declaration.fields = nullptr;  // as if the file were not there
  }
}

/// Whether the configuration counts as ModelOpt's though its quant_method need not say so.
bool is_from_modelopt(const CacheDeclaration& declaration, const ConfigReading& reading,
                      bool from_file) {
  if (reading.needs_producer)
    return text_of(value_of(declaration.config, "producer"), "name") == "modelopt";
  return from_file || (!declaration.config.is_null() && declaration.method.empty()) ||
         declaration.method == "modelopt";
}

void name_method(CacheDeclaration& declaration, const ConfigReading& reading, bool from_file) {
  const std::string written = text_of(declaration.config, "quant_method");
  declaration.method = reading.method_has_case ? written : ascii_lower(written);
  for (const AlgorithmRule& alias : reading.aliases)
    if (declaration.method == alias.algorithm) declaration.method = alias.method;
  if (reading.algorithms.empty()) {
    if (from_file && declaration.method.empty()) declaration.method = reading.file_method;
  } else if (is_from_modelopt(declaration, reading, from_file)) {
    name_by_algorithm(declaration, reading, from_file);
  }
}

/// A kv_cache_scheme of ModelOpt's config.json means FP8 where it is static with float codes of 8
/// bits.
bool is_static_fp8(const Json& scheme) {
  return value_of(scheme, "dynamic") == false && value_of(scheme, "num_bits") == 8 &&
         value_of(scheme, "type") == "float";
}

bool is_float_of(const Json& scheme, int bits) {
  return value_of(scheme, "num_bits") == bits && value_of(scheme, "type") == "float";
}

/// ModelOpt's word for the cache; its kv_cache_scheme may be one. Source: vLLM 0.32
/// `get_kv_cache_quant_algo_string`.
std::string cache_word(const CacheDeclaration& declaration) {
  if (declaration.scheme.is_null()) return declaration.cache_algorithm;
  return declaration.scheme.is_string() ? ascii_lower(declaration.scheme.get<std::string>()) : "";
}

bool means_nvfp4(const CacheDeclaration& declaration) {
  return declaration.scheme.is_object() ? is_float_of(declaration.scheme, 4)
                                        : cache_word(declaration) == "nvfp4";
}

/// Whether what switches a cache on means INT8: a scheme of compressed-tensors, whose type is int
/// where it names none, or ModelOpt's word.
bool means_int8(const CacheDeclaration& declaration) {
  if (!declaration.scheme.is_object()) return cache_word(declaration) == "int8";
  const Json type = value_of(declaration.scheme, "type");
  return type.is_null() || (type.is_string() && ascii_lower(type.get<std::string>()) == "int");
}

/// Whether a scheme of compressed-tensors says codes of 4 bits.
bool means_4_bits(const CacheDeclaration& declaration) {
  const Json bits = value_of(declaration.scheme, "num_bits");
  return bits == 4 || bits == "4";
}

/// Whether it is that text, in whatever case.
bool is_word(const Json& value, std::string_view word) {
  return value.is_string() && ascii_lower(value.get<std::string>()) == word;
}

/// What CacheSwitch::kModelOptLayout goes by. Source: SGLang 0.5.23, `ModelOptFp8Config`.
Json layout_word(const CacheDeclaration& declaration) {
  const Json& config = declaration.config;
  const bool is_flat = declaration.fields == config;
  const Json scheme = value_of(config, "kv_cache_scheme");
  if (is_flat && scheme.is_object()) return is_float_of(scheme, 8) ? "FP8" : "";
  return value_of(is_flat ? config : value_of(config, "quantization"), "kv_cache_quant_algo");
}

/// Whether it says anything of the cache; of ModelOpt's schemes only FP8 counts.
bool configures_cache(const MethodRules& rules, const CacheDeclaration& declaration) {
  if (rules.cache == CacheSwitch::kModelOptLayout) return !is_nothing(layout_word(declaration));
  if (!declaration.cache_algorithm.empty()) return true;
  return declaration.method.starts_with("modelopt") ? is_float_of(declaration.scheme, 8)
                                                    : !declaration.scheme.is_null();
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
      return is_float_of(declaration.scheme, 8) && !is_rocm;
    case CacheSwitch::kModelOptCache:
      return declaration.scheme.is_object() ? is_static_fp8(declaration.scheme)
                                            : cache_word(declaration) == "fp8";
    case CacheSwitch::kModelOptLayout:
      return is_word(layout_word(declaration), "fp8");
    case CacheSwitch::kCacheQuantAlgo:
      return ascii_lower(text_of(declaration.config, "kv_cache_quant_algo")) == "fp8";
  }
  return false;
}

std::string refusal(const MethodRules& rules, const CacheDeclaration& declaration,
                    const std::string& asked) {
  if (!rules.refusal.empty()) return std::string(rules.refusal);
  if (rules.needs_scheme && declaration.scheme.is_null() && lacks_groups(declaration))
    return "quantization_config has neither a kv_cache_scheme nor config_groups";
  if (rules.needs_algorithm && declaration.algorithm.empty())
    return "quant_algo is null or missing";
  if (std::string failed = failed_key(rules.config, declaration.fields); !failed.empty())
    return failed;
  if (rules.refuses_other_schemes)
    if (std::string failed = failed_check(rules, declaration.scheme); !failed.empty())
      return "kv_cache_scheme: " + failed;
  if (declaration.method == "quark" && rules.method == "quark")
    if (std::string failed = quark_refusal(declaration.config, rules.groups_by_pattern);
        !failed.empty())
      return failed;
  const bool has_scales = rules.method != "compressed-tensors" || !declaration.scheme.is_null();
  if (asked == "fp8_e5m2" && !rules.takes_e5m2 && has_scales)
    return "an FP8 E5M2 cache cannot be asked for with scales in the checkpoint";
  return {};
}

}  // namespace

CacheDeclaration read_declaration(const ModelDir& model_dir, const ConfigReading& reading) {
  CacheDeclaration declaration;
  declaration.config = declared_config(model_dir.config(), reading);
  declaration.dialect = read_dialect(model_dir);
  Json file = read_quant_file(model_dir, reading, !declaration.config.is_null());
  const bool from_file = !file.is_null();
  if (from_file) declaration.config = std::move(file);
  if (const std::string failed =
          failed_key(from_file ? reading.file : reading.config, declaration.config);
      !declaration.config.is_null() && !failed.empty())
    declaration.refusal =
        std::string(from_file ? reading.file_name : "quantization_config") + ": " + failed;
  const Json inner = value_of(declaration.config, "quantization");
  declaration.fields =
      inner.is_object() && (from_file || reading.reads_nested) ? inner : declaration.config;
  declaration.algorithm = text_of(declaration.fields, "quant_algo");
  if (declaration.algorithm.empty()) declaration.algorithm = text_of(inner, "quant_algo");
  name_method(declaration, reading, from_file);
  const bool is_modelopt = declaration.method.starts_with("modelopt");
  for (const Json& place : {declaration.fields, declaration.config}) {
    // Of ModelOpt's, Python's `or` passes over what is nothing.
    if (declaration.scheme.is_null() || (is_modelopt && is_nothing(declaration.scheme)))
      declaration.scheme = value_of(place, "kv_cache_scheme");
    if (declaration.cache_algorithm.empty())
      declaration.cache_algorithm = ascii_lower(text_of(place, "kv_cache_quant_algo"));
  }
  if (declaration.method == "ascend" &&
      text_of(declaration.config, kAscendCacheKey) == kAscendCacheWord)
    declaration.cache_algorithm = "int8";
  if ((reading.false_scheme_is_none || is_modelopt) && is_nothing(declaration.scheme))
    declaration.scheme = nullptr;
  return declaration;
}

bool lacks_groups(const CacheDeclaration& declaration) {
  return value_of(declaration.config, "config_groups").empty();
}

bool quantizes_no_linear(const CacheDeclaration& declaration) {
  const Json groups = value_of(declaration.config, "config_groups");
  return groups.empty() ||
         failed_key({{.key = "*", .accepted = {"a group of attention"}}}, groups).empty();
}

bool declares_attention(const CacheDeclaration& declaration) {
  const Json groups = value_of(declaration.config, "config_groups");
  return std::ranges::any_of(groups, [](const Json& group) {
    return value_of(group, "weights").is_null() && value_of(group, "input_activations").is_object();
  });
}

bool lacks_targets(const CacheDeclaration& declaration) {
  const Json ignore = value_of(declaration.config, "ignore");
  return lacks_groups(declaration) && std::ranges::none_of(ignore, [](const Json& entry) {
           return entry == "Linear" || entry == "re:.*";
         });
}

namespace {

/// Those that ModelOpt's map of quantized caches lacks.
std::set<int64_t> unlisted_layers(const Json& caches, const ModelConfig& config) {
  std::set<int64_t> layers;
  if (!caches.is_object()) return layers;
  for (const int64_t layer : config.attention_layers())
    if (!caches.contains(config.attention_module(layer))) layers.insert(layer);
  return layers;
}

}  // namespace

std::set<int64_t> ignored_layers(const CacheDeclaration& declaration, const ModelConfig& config) {
  if (declaration.method.starts_with("modelopt"))
    return unlisted_layers(value_of(declaration.fields, kQuantizedCachesKey), config);
  const Json ignore = value_of(declaration.config, "ignore");
  std::set<int64_t> layers;
  if (declaration.method != "compressed-tensors" || !ignore.is_array()) return layers;
  for (const Json& entry : ignore) {
    if (!entry.is_string()) continue;
    for (const int64_t layer : config.attention_layers()) try {
        if (matches_target(entry.get_ref<const std::string&>(), config.attention_module(layer)))
          layers.insert(layer);
      } catch (const Error&) {
        continue;  // no expression, or one that costs too much
      }
  }
  if (layers.size() == config.attention_layers().size()) layers.clear();
  return layers;
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
  if (std::string failed = failed_key(rules.scheme, scheme); !failed.empty()) return failed;
  if (rules.scheme_keys.empty() || !scheme.is_object()) return {};
  for (const auto& [key, value] : scheme.items())
    if (std::ranges::find(rules.scheme_keys, key) == rules.scheme_keys.end())
      return "it takes no key " + key;
  return {};
}

CacheChoice choose_cache(const MethodRules& rules, const CacheDeclaration& declaration,
                         const std::string& asked, bool is_rocm) {
  CacheChoice choice;
  choice.refusal = refusal(rules, declaration, asked);
  choice.reads_scales =
      rules.refuses_other_schemes || rules.scheme.empty() ||
      (!declaration.scheme.is_null() && failed_check(rules, declaration.scheme).empty());
  if (rules.needs_cache_config && !configures_cache(rules, declaration))
    choice.reads_scales = false;
  if (asked != "auto")
    choice.dtype = asked;
  else if (switches_on(rules, declaration, is_rocm))
    choice.dtype = means_4_bits(declaration) ? (means_int8(declaration) ? "int4" : "fp4")
                   : means_int8(declaration) ? "int8"
                                             : std::string(rules.fp8_name);
  else if (rules.takes_int8 && means_int8(declaration))
    choice.dtype = "int8";
  else if (rules.takes_nvfp4 && means_nvfp4(declaration))
    choice.dtype = "nvfp4";
  choice.is_fp8 = choice.dtype.starts_with("fp8");
  choice.is_quantized = is_quantized_cache(choice.dtype);
  return choice;
}

bool is_quantized_cache(std::string_view dtype) {
  return dtype.starts_with("fp8") || dtype == "nvfp4" || dtype == "int8" || dtype == "fp4" ||
         dtype == "int4";
}

}  // namespace kvcal
