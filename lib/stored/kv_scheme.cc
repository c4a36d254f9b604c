#include "stored/kv_scheme.h"

#include <algorithm>
#include <cctype>

#include "core/registry.h"
#include "stored/compressed_tensors_schemes.h"

namespace kvcal {
namespace {

using Cache = KvScheme::Cache;

/// compressed-tensors' arguments as a strategy, or why no engine runs them.
void parse_args(const Json& args, KvScheme& scheme) {
  const Strategy strategy = parse_fp8_args(args);
  if (is_dynamic(args)) fail("key 'dynamic' is true, engines take the scales from the checkpoint");
  if (strategy != Strategy::kTensor && strategy != Strategy::kAttnHead)
    fail("key 'strategy' is '", name_of(strategy), "', expected tensor or attn_head");
  scheme.strategy = strategy;
}

/// parse(scheme), whose Error is what the scheme is instead of FP8.
template <class Parse>
KvScheme fp8_or_other(const std::string& where, const Parse& parse) {
  KvScheme scheme{.cache = Cache::kFp8, .where = where};
  try {
    parse(scheme);
  } catch (const Error& error) {
    scheme.cache = Cache::kOther;
    scheme.problem = error.what();
  }
  return scheme;
}

KvScheme of_compressed_tensors(const QuantizationConfig& config) {
  const std::string where = config.where + ".kv_cache_scheme";
  const Json* args = find_field(config.json, "kv_cache_scheme");
  if (!args) return {.cache = Cache::kUnquantized, .where = where};
  return fp8_or_other(where, [&](KvScheme& scheme) { parse_args(*args, scheme); });
}

/// Source: vLLM 0.32 `get_kv_cache_quant_algo_string`.
KvScheme of_modelopt(const QuantizationConfig& config) {
  for (const char* key : {"kv_cache_scheme", "kv_cache_quant_algo"}) {
    const Json* value = find_field(config.json, key);
    if (!value) continue;
    return fp8_or_other(config.where + "." + key, [&](KvScheme& scheme) {
      scheme.strategy = Strategy::kTensor;
      if (value->is_object()) return parse_args(*value, scheme);
      if (!value->is_string() || normalised_name(value->get_ref<const std::string&>()) != "fp8")
        fail("found ", value->dump(), ", expected FP8");
    });
  }
  return {.cache = Cache::kUnquantized, .where = config.where + ".kv_cache_quant_algo"};
}

/// "static" is AutoFP8's and Quark's only word. Without it the engine's options decide.
KvScheme of_fp8(const QuantizationConfig& config) {
  const std::string where = config.where + ".kv_cache_scheme";
  const Json* value = find_field(config.json, "kv_cache_scheme");
  if (!value) return {.where = where};
  return fp8_or_other(where, [&](KvScheme& scheme) {
    scheme.strategy = Strategy::kTensor;
    if (value->is_object()) return parse_args(*value, scheme);
    if (*value != "static") fail("found ", value->dump(), ", expected \"static\"");
  });
}

/// Outputs of the Linears that a list names. Source: vLLM 0.32 `QuarkConfig.from_config`.
KvScheme of_quark(const QuantizationConfig& config) {
  const std::string where = config.where + ".export.kv_cache_group";
  const Json* exported = find_field(config.json, "export");
  const Json* group = exported ? find_field(*exported, "kv_cache_group") : nullptr;
  if (!group || group->empty()) return {.cache = Cache::kUnquantized, .where = where};
  return fp8_or_other(where, [&](KvScheme& scheme) {
    scheme.strategy = Strategy::kTensor;
    const Json* layers = find_field(config.json, "layer_quant_config");
    for (const std::string& name : strings_of(*exported, "kv_cache_group")) {
      const Json* layer = layers && layers->is_object() ? find_field(*layers, name) : nullptr;
      const Json* outputs = layer ? find_field(*layer, "output_tensors") : nullptr;
      if (!outputs) continue;  // one that covers it by a wildcard
      const auto dtype = optional_string(*outputs, "dtype");
      if (dtype && *dtype != "fp8_e4m3")
        fail("the outputs of '", name, "' are ", *dtype, ", expected fp8_e4m3");
      if (optional_bool(*outputs, "is_dynamic").value_or(false))
        fail("the outputs of '", name, "' have dynamic scales, expected static ones");
    }
  });
}

}  // namespace

KvScheme read_kv_scheme(const QuantizationConfig& config) {
  switch (config.form) {
    case QuantForm::kCompressedTensors:
      return of_compressed_tensors(config);
    case QuantForm::kModelOpt:
      return of_modelopt(config);
    case QuantForm::kFp8:
      return of_fp8(config);
    case QuantForm::kQuark:
      return of_quark(config);
    case QuantForm::kNone:
      break;
  }
  return {};
}

}  // namespace kvcal
