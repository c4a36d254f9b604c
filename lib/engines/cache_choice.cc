#include "engines/cache_choice.h"

#include <algorithm>
#include <iterator>

#include "core/file.h"
#include "core/folder.h"
#include "core/json.h"
#include "core/pcre2_regex.h"
#include "core/text.h"
#include "stored/kv_scales.h"
#include "stored/quantization_config.h"

#include "quant/module_target.h"

namespace kvcal {
namespace {

constexpr std::string_view kExpression = "re:";

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

bool is_text(const Json& value) {
  return value.is_string();
}

/// The expression behind "re:", which is for the start of a name. Throws RegexSyntaxError.
Pcre2Regex expression_of(std::string_view pattern) {
  return Pcre2Regex(
      std::string(pattern.substr(kExpression.size())),
      {.is_anchored = true, .max_steps = 100'000, .max_depth = 1'000, .max_heap_kib = 1024});
}

/// A text, whose expression, where it is one, can be compiled.
bool is_pattern(const Json& value) {
  if (!value.is_string()) return false;
  const std::string& text = value.get_ref<const std::string&>();
  if (!text.starts_with(kExpression)) return true;
  try {
    expression_of(text);
    return true;
  } catch (const RegexSyntaxError&) {
    return false;
  }
}

bool is_list_of(bool (*is_kind)(const Json&), const Json& value) {
  return value.is_array() && std::ranges::all_of(value, is_kind);
}

bool has_targets(const Json& group) {
  return group.is_object() && group.contains("targets") && group.at("targets").is_array();
}

/// Where there are targets; engines look at no other groups.
bool has_weights(const Json& group) {
  return group.at("targets").empty() ||
         (group.contains("weights") && group.at("weights").is_object());
}

/// Of one class, whose name says so. Source: vLLM 0.32, `CompressedTensorsConfig.from_config`.
bool is_of_attention(const Json& group) {
  if (!has_targets(group) || group.at("targets").size() != 1) return false;
  const Json& target = group.at("targets")[0];
  return target.is_string() && target.get_ref<const std::string&>().ends_with("Attention");
}

/// Null is there, other than for find_field.
const Json* key_of(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(std::string(key));
  return it == object.end() ? nullptr : &*it;
}

bool is_accepted(std::string_view accepted, const Json& value, bool ignores_case) {
  if (accepted == "a list") return value.is_array();
  if (accepted == "a list of texts") return is_list_of(is_text, value);
  if (accepted == "a list of patterns") return is_list_of(is_pattern, value);
  if (accepted == "a group") return has_targets(value);
  if (accepted == "a group with weights") return has_targets(value) && has_weights(value);
  if (accepted == "a group of attention") return is_of_attention(value);
  if (accepted == "an object") return value.is_object();
  if (accepted == "group_0 alone") return value.size() == 1 && key_of(value, "group_0");
  if (accepted == "a text") return value.is_string();
  if (accepted == "true or false") return value.is_boolean();
  const Json wanted = parse_json(accepted);
  if (ignores_case && value.is_string() && wanted.is_string())
    return ascii_lower(value.get<std::string>()) == ascii_lower(wanted.get<std::string>());
  return value == wanted;  // as Python compares: 8.0 is 8
}

struct Found {
  std::string path;
  const Json* value;  ///< nullptr: the object lacks the key
};

/// The values that a check's key names, from `path` of `object` on.
std::vector<Found> values_at(const Json& object, std::string_view key, const std::string& path) {
  const size_t dot = key.find('.');
  const std::string_view first = key.substr(0, dot);
  std::vector<Found> members;
  if (first == "*") {
    for (const auto& [name, value] : object.items()) members.push_back({path + name, &value});
  } else {
    members.push_back({path + std::string(first), key_of(object, first)});
  }
  if (dot == std::string_view::npos) return members;
  std::vector<Found> found;
  for (const Found& member : members)
    if (member.value && member.value->is_object())
      std::ranges::copy(values_at(*member.value, key.substr(dot + 1), member.path + "."),
                        std::back_inserter(found));
  return found;
}

bool has_entries(const Json& object, std::string_view key) {
  const Json* value = key_of(object, key);
  return value && value->is_object() && !value->empty();
}

bool is_waived(const KeyCheck& check, const Json& object) {
  return (!check.waived_by.empty() && has_entries(object, check.waived_by)) ||
         (!check.only_with.empty() && !has_entries(object, check.only_with));
}

bool passes(const KeyCheck& check, const Json* value) {
  if (!value) return check.may_lack;
  return std::ranges::any_of(check.accepted, [&](std::string_view accepted) {
    return is_accepted(accepted, *value, check.ignores_case);
  });
}

}  // namespace

std::string failed_key(const std::vector<KeyCheck>& checks, const Json& object) {
  for (const KeyCheck& check : checks) {
    if (is_waived(check, object)) continue;
    for (const auto& [path, value] : values_at(object, check.key, {})) {
      if (passes(check, value)) continue;
      std::string accepted;
      for (const std::string_view text : check.accepted)
        accepted += (accepted.empty() ? "" : " or ") + std::string(text);
      return path + " is " + (value ? value->dump() : "missing") + ", it takes " + accepted;
    }
  }
  return {};
}

namespace {

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
  const fs::path file = model_dir.path() / kModelOptFileName;
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
  const std::string algorithm =
      reading.algorithm_has_case ? declaration.algorithm : ascii_upper(declaration.algorithm);
  const auto rule = std::ranges::find(reading.algorithms, algorithm,
                                      [](const AlgorithmRule& row) { return row.algorithm; });
  if (rule != reading.algorithms.end()) {
    declaration.method = rule->method;
  } else if (reading.refuses_other_algorithms && !declaration.algorithm.empty() &&
             declaration.refusal.empty()) {
    declaration.refusal = "it does not know ModelOpt's quant_algo " + declaration.algorithm +
                          " in " + (from_file ? "hf_quant_config.json" : "config.json");
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
    if (from_file && declaration.method.empty()) declaration.method = "modelopt";
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
  return declaration.scheme.is_string() ? ascii_lower(declaration.scheme.get<std::string>())
                                        : declaration.cache_algorithm;
}

bool means_nvfp4(const CacheDeclaration& declaration) {
  return declaration.scheme.is_object() ? is_float_of(declaration.scheme, 4)
                                        : cache_word(declaration) == "nvfp4";
}

/// As Python takes it.
bool is_false(const Json& value) {
  return value.empty() || value == false || value == 0 || value == "";
}

/// Whether it says anything of the cache; of ModelOpt's schemes only FP8 counts.
bool configures_cache(const CacheDeclaration& declaration) {
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
    case CacheSwitch::kCacheQuantAlgo:
      return ascii_lower(text_of(declaration.config, "kv_cache_quant_algo")) == "fp8";
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
    return entry.is_string() && entry.get_ref<const std::string&>().starts_with(kExpression);
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
  if (rules.needs_algorithm && declaration.algorithm.empty())
    return "quant_algo is null or missing";
  if (std::string failed = failed_key(rules.config, declaration.fields); !failed.empty())
    return failed;
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
        std::string(from_file ? kModelOptFileName : "quantization_config") + ": " + failed;
  const Json inner = value_of(declaration.config, "quantization");
  declaration.fields =
      inner.is_object() && (from_file || reading.reads_nested) ? inner : declaration.config;
  declaration.algorithm = text_of(inner.is_object() ? inner : declaration.config, "quant_algo");
  name_method(declaration, reading, from_file);
  for (const Json& place : {declaration.fields, declaration.config}) {
    if (declaration.scheme.is_null()) declaration.scheme = value_of(place, "kv_cache_scheme");
    if (declaration.cache_algorithm.empty())
      declaration.cache_algorithm = ascii_lower(text_of(place, "kv_cache_quant_algo"));
  }
  if (reading.false_scheme_is_none && is_false(declaration.scheme)) declaration.scheme = nullptr;
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
  if (rules.needs_cache_config && !configures_cache(declaration)) choice.reads_scales = false;
  if (asked != "auto")
    choice.dtype = asked;
  else if (switches_on(rules, declaration, is_rocm))
    choice.dtype = rules.fp8_name;
  else if (rules.takes_nvfp4 && means_nvfp4(declaration))
    choice.dtype = "nvfp4";
  choice.is_fp8 = choice.dtype.starts_with("fp8");
  choice.is_quantized = is_quantized_cache(choice.dtype);
  return choice;
}

bool is_quantized_cache(std::string_view dtype) {
  return dtype.starts_with("fp8") || dtype == "nvfp4";
}

}  // namespace kvcal
