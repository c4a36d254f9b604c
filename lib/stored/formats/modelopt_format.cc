#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/registry.h"
#include "core/text.h"
#include "stored/integer_matrix.h"
#include "stored/quantization_config.h"
#include "stored/stored_format.h"

namespace kvcal {
namespace {

void fp8_algorithm(const Json&, ModuleScheme& scheme) {
  scheme.input = InputQuantization::kStatic;
}

void fp8_rows_algorithm(const Json&, ModuleScheme& scheme) {
  scheme.strategy = Strategy::kChannel;
  scheme.input = InputQuantization::kDynamicToken;
}

void fp8_blocks_algorithm(const Json& config, ModuleScheme& scheme) {
  const int64_t side = find_field(config, "group_size") ? positive_group(config, "group_size") : 0;
  scheme.strategy = Strategy::kBlock;
  scheme.block_rows = scheme.block_columns = scheme.group = side > 0 ? side : 128;
  scheme.input = InputQuantization::kDynamicGroup;
}

/// Columns that share a scale, which must be `expected`.
void check_group(const Json& config, int64_t expected, const ModuleScheme& scheme) {
  if (const int64_t group = optional_int(config, "group_size").value_or(expected);
      group != expected)
    fail("key 'group_size' is ", group, ", expected ", expected, " for ", scheme.source);
}

void tell_inputs(const char* type, ModuleScheme& scheme) {
  scheme.unrun_input = scheme.source + " quantizes inputs to " + type;
}

void mxfp8_algorithm(const Json& config, ModuleScheme& scheme) {
  check_group(config, 32, scheme);
  scheme.storage = mxfp8_codes();
  tell_inputs("MXFP8", scheme);
}

void read_mxfp4_weights(const Json& config, ModuleScheme& scheme) {
  check_group(config, 32, scheme);
  scheme.storage = fp4_codes({.codes_name = ".weight", .group = 32, .has_exponents = true});
}

CodeFormat nvfp4_codes(int64_t group) {
  return fp4_codes({.codes_name = ".weight", .group = group, .global_name = ".weight_scale_2"});
}

void read_nvfp4_weights(const Json& config, ModuleScheme& scheme) {
  check_group(config, 16, scheme);
  scheme.storage = with_input_scale(nvfp4_codes(16));
}

/// Codes as NVFP4's, in groups of 32 as ModelOpt's preset has them. A scale times a code is at most
/// 448, so that kernels can make FP8 of it; the values here are those that ModelOpt simulates.
void nvfp4_fp8_algorithm(const Json& config, ModuleScheme& scheme) {
  const int64_t group = optional_int(config, "group_size").value_or(16);
  if (group != 16 && group != 32) fail("key 'group_size' is ", group, ", expected 16 or 32");
  scheme.storage = nvfp4_codes(group);
  scheme.input = InputQuantization::kStatic;
}

void read_int4_weights(const Json& config, ModuleScheme& scheme, bool rounds_to_fp8) {
  const int64_t group =
      find_field(config, "group_size") ? positive_group(config, "group_size") : 128;
  scheme.storage = with_input_scale(modelopt_int4_codes(group, rounds_to_fp8));
}

/// A scale for each row, [out]; SmoothQuant may leave a scale of inputs.
void read_int8_weights(const Json&, ModuleScheme& scheme) {
  scheme.storage = with_input_scale(packed_integers({.is_packed = false}));
}

/// An algorithm that is read. Source: vLLM 0.32 `resolve` of modelopt.py, ModelOpt 0.48.0rc1
/// export/quant_utils.py `process_layer_quant_config`, 0.47.0 `to_quantized_weight`.
struct AlgorithmRow {
  std::string_view name;
  void (*read)(const Json& config, ModuleScheme& scheme);
};

constexpr std::array<AlgorithmRow, 15> kAlgorithms{{
    {"FP8", fp8_algorithm},
    {"FP8_PER_CHANNEL_PER_TOKEN", fp8_rows_algorithm},
    {"FP8_PB_WO", fp8_blocks_algorithm},
    {"FP8_BLOCK_SCALES", fp8_blocks_algorithm},  // early name of the same
    {"MXFP8", mxfp8_algorithm},
    {"MXFP4",
     [](const Json& config, ModuleScheme& scheme) {
       read_mxfp4_weights(config, scheme);
       tell_inputs("MXFP4", scheme);
     }},
    {"W4A8_MXFP4_FP8",
     [](const Json& config, ModuleScheme& scheme) {
       read_mxfp4_weights(config, scheme);
       tell_inputs("FP8", scheme);
     }},
    {"NVFP4",
     [](const Json& config, ModuleScheme& scheme) {
       read_nvfp4_weights(config, scheme);
       tell_inputs("FP4", scheme);
     }},
    {"NVFP4_AWQ",
     [](const Json& config, ModuleScheme& scheme) {
       read_nvfp4_weights(config, scheme);
       tell_inputs("FP4", scheme);
     }},
    {"W4A16_NVFP4", read_nvfp4_weights},
    {"W4A8_NVFP4_FP8", nvfp4_fp8_algorithm},
    {"W4A16_AWQ",
     [](const Json& config, ModuleScheme& scheme) {
       read_int4_weights(config, scheme, /*rounds_to_fp8=*/false);
     }},
    {"W4A8_AWQ",
     [](const Json& config, ModuleScheme& scheme) {
       read_int4_weights(config, scheme, /*rounds_to_fp8=*/true);
       tell_inputs("FP8", scheme);
     }},
    {"W8A16", read_int8_weights},
    {"W8A8_SQ_PER_CHANNEL",
     [](const Json& config, ModuleScheme& scheme) {
       read_int8_weights(config, scheme);
       tell_inputs("INT8", scheme);
     }},
}};

ModuleScheme scheme_of(const Json& config, const std::string& written) {
  const std::string algo = ascii_upper(written);
  const auto* row = std::ranges::find(kAlgorithms, algo, &AlgorithmRow::name);
  if (row == kAlgorithms.end()) {
    std::string known;
    for (const AlgorithmRow& one : kAlgorithms) known += std::string(one.name) + ", ";
    fail("key 'quant_algo' is '", written, "', whose weights are not read; expected ", known,
         "or MIXED_PRECISION");
  }
  ModuleScheme scheme;
  scheme.source = "quant_algo " + algo;
  row->read(config, scheme);
  return scheme;
}

/// An algorithm for each listed module and for what is in it; the others are 16-bit.
class ListedSchemes {
 public:
  ListedSchemes(const Json& layers, std::vector<std::string> except) : except_(std::move(except)) {
    for (const auto& [module, layer] : layers.items())
      in_context("quantized_layers." + module, [&, &module = module, &layer = layer] {
        if (!layer.is_object()) fail("found ", kind_of(layer), ", expected an object");
        schemes_.emplace(module, scheme_of(layer, required_string(layer, "quant_algo")));
      });
  }

  const ModuleScheme* operator()(const ModuleName& module) const {
    if (is_exception(except_, ExceptionMatch::kWildcards, module.name)) return nullptr;
    for (const std::string& name : names_of(module))
      if (const ModuleScheme* scheme = nearest(name)) return scheme;
    return nullptr;
  }

 private:
  /// Names under which a list may have the module. Source: vLLM 0.32
  /// `_quantized_layer_prefix_candidates`.
  static std::vector<std::string> names_of(const ModuleName& module) {
    std::vector<std::string> names{module.name};
    if (!module.alias.empty()) names.push_back(module.alias);
    constexpr std::string_view kOuter = "language_model.model.", kInner = "model.language_model.";
    for (const auto& [from, to] : {std::pair(kOuter, kInner), std::pair(kInner, kOuter)})
      if (module.name.starts_with(from))
        names.push_back(std::string(to) + module.name.substr(from.size()));
    return names;
  }

  /// The scheme of the module, or of the smallest listed one that it is in: experts may be listed
  /// as "model.layers.0.mlp.experts".
  const ModuleScheme* nearest(std::string_view name) const {
    while (true) {
      if (const auto found = schemes_.find(name); found != schemes_.end()) return &found->second;
      const size_t dot = name.rfind('.');
      if (dot == std::string_view::npos) return nullptr;
      name = name.substr(0, dot);
    }
  }

  std::map<std::string, ModuleScheme, std::less<>> schemes_;
  std::vector<std::string> except_;
};

ModuleSchemes read_modelopt(const QuantizationConfig& source) {
  const Json& config = source.json;
  const std::string_view exclude_key = source.is_nested ? "exclude_modules" : "ignore";
  check_keys(source, split("quant_algo kv_cache_quant_algo kv_cache_scheme exclude_modules ignore "
                           "group_size config_groups quant_method quantized_layers producer "
                           "ignored_layers has_zero_point pre_quant_scale quantization "
                           "kv_cache_quantized_layers kv_cache_schema_version "
                           "kv_cache_deployment_supported",
                           ' '));
  const auto written = optional_string(config, "quant_algo");
  if (!written) return nullptr;  // KV scales alone
  if (normalised_name(*written) == "mixed-precision" ||
      normalised_name(*written) == "mixed_precision") {
    const Json* layers = find_field(config, "quantized_layers");
    if (!layers || !layers->is_object() || layers->empty())
      fail("key 'quantized_layers' is missing or empty here and in ", kModelOptFileName,
           ", expected an object of modules");
    return ListedSchemes(*layers, strings_of(config, exclude_key));
  }
  return all_but(strings_of(config, exclude_key), ExceptionMatch::kWildcards,
                 scheme_of(config, *written));
}

/// A cache's word, or compressed-tensors' arguments of one.
bool means_nvfp4(const Json& value) {
  if (value.is_string()) return normalised_name(value.get_ref<const std::string&>()) == "nvfp4";
  const Json* bits = member(value, "num_bits");
  const Json* type = member(value, "type");
  return bits && type && *bits == 4 && *type == "float";
}

bool is_word(const Json& value, std::string_view word) {
  return value.is_string() && normalised_name(value.get_ref<const std::string&>()) == word;
}

/// Throws Error where some layer's cache is of another kind than the word's: "fp8" or "int8".
void check_listed_caches(const Json& config, std::string_view word) {
  const Json* caches = member(config, kQuantizedCachesKey);
  if (!caches) return;
  if (!caches->is_object())
    fail("key '", kQuantizedCachesKey, "' is ", kind_of(*caches), ", expected an object");
  if (const Json* version = member(config, kCacheSchemaKey); version && *version != 1)
    fail("key '", kCacheSchemaKey, "' is ", version->dump(), ", expected 1");
  for (const auto& [module, cache] : caches->items()) {
    const Json* algorithm = member(cache, "quant_algo");
    if (!algorithm || !is_word(*algorithm, word))
      fail(kQuantizedCachesKey, ".", module, " is ", cache.dump(), ", expected ",
           ascii_upper(std::string(word)));
  }
}

/// Source: vLLM 0.32 `get_kv_cache_quant_algo_string`.
KvScheme read_modelopt_cache(const QuantizationConfig& config) {
  for (const char* key : {"kv_cache_scheme", "kv_cache_quant_algo"}) {
    const Json* value = find_field(config.json, key);
    if (!value) continue;
    if (means_nvfp4(*value))
      return {.cache = KvScheme::Cache::kNvfp4,
              .strategy = Strategy::kTensor,
              .where = config.where + "." + key};
    return fp8_or_other(config.where + "." + key, [&](KvScheme& scheme) {
      scheme.strategy = Strategy::kTensor;
      if (value->is_object()) parse_cache_args(*value, scheme);
      if (is_word(*value, "int8")) scheme.cache = KvScheme::Cache::kInt8;
      check_listed_caches(config.json, scheme.cache == KvScheme::Cache::kInt8 ? "int8" : "fp8");
      if (!value->is_object() && !is_word(*value, "fp8") && !is_word(*value, "int8"))
        fail("found ", value->dump(), ", expected FP8, INT8 or NVFP4");
    });
  }
  return {.cache = KvScheme::Cache::kUnquantized, .where = config.where + ".kv_cache_quant_algo"};
}

/// Whether ModelOpt's config quantizes weights. key: name of the list of excluded modules.
bool has_algorithm(const Json& config, std::string_view key) {
  const Json* excluded = member(config, key);
  return member(config, "quant_algo") && !(excluded && *excluded == Json::array({"*"}));
}

constexpr std::array<std::string_view, 3> kLayerKeys{kQuantizedCachesKey, kCacheSchemaKey,
                                                     "kv_cache_deployment_supported"};

bool strip_modelopt_cache(Json& config) {
  if (config.is_null()) return false;
  if (const auto nested = config.find("quantization"); nested != config.end()) {
    if (!nested->is_object()) return false;
    if (nested->contains("kv_cache_quant_algo")) (*nested)["kv_cache_quant_algo"] = nullptr;
    for (const std::string_view key : kLayerKeys) nested->erase(std::string(key));
    return has_algorithm(*nested, "exclude_modules");
  }
  for (const char* key : {"kv_cache_scheme", "kv_cache_quant_algo"}) config.erase(key);
  for (const std::string_view key : kLayerKeys) config.erase(std::string(key));
  return has_algorithm(config, "ignore");
}

}  // namespace

constexpr KvScaleNames kModelOptNames[]{{.name = "modelopt",
                                         .k = ".k_proj.k_scale",
                                         .v = ".v_proj.v_scale",
                                         .keys = KeyPosition::kAfterRope},
                                        {.name = "modelopt, fused",
                                         .k = ".qkv_proj.k_scale",
                                         .v = ".qkv_proj.v_scale",
                                         .keys = KeyPosition::kAfterRope}};
// vLLM's "modelopt_fp4", "modelopt_mixed", ... too; quant_algo tells them apart.
extern constinit const StoredFormat kModeloptFormat{
    .name = "modelopt",
    .method = "modelopt",
    .has_method_variants = true,
    .config_file = kModelOptFileName,
    .nested_key = "quantization",
    .weight_keys = "quant_algo group_size quantized_layers",
    .kv_names = kModelOptNames,
    .read_schemes = read_modelopt,
    .read_cache_scheme = read_modelopt_cache,
    .strip_cache = strip_modelopt_cache};

}  // namespace kvcal
