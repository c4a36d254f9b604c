#include <algorithm>
#include <array>
#include <iterator>
#include <tuple>

#include "stored/fp8_args.h"
#include "stored/stored_form.h"

namespace kvcal {
namespace {
namespace fp8_method {

/// AutoFP8's form with one scale per tensor, and DeepSeek's with one per block.
std::unique_ptr<ModuleSchemes> read_schemes(const QuantizationConfig& source, TargetMatcher) {
  const Json& config = source.json;
  constexpr std::array<std::string_view, 13> kKeys{"quant_method",
                                                   "activation_scheme",
                                                   "weight_block_size",
                                                   "ignored_layers",
                                                   "modules_to_not_convert",
                                                   "modules_to_convert",
                                                   "kv_cache_scheme",
                                                   "fmt",
                                                   "scale_fmt",
                                                   "dequantize",
                                                   "store_dtype",
                                                   "producer",
                                                   "version"};
  check_keys(source, kKeys);
  if (const auto format = optional_string(config, "fmt"); format && !means_e4m3fn(*format))
    fail("key 'fmt' is '", *format, "', whose weights are not read; expected e4m3 (E4M3FN)");
  if (find_field(config, "modules_to_convert"))
    fail("key 'modules_to_convert' is not read; expected modules_to_not_convert");
  // Scales have AutoFP8's names or DeepSeek's: Ministral 3 has the latter with one scale per
  // tensor, others have the former with blocks.
  ModuleScheme scheme;
  scheme.scale_names = {".weight_scale", ".weight_scale_inv"};
  scheme.input_scale_names = {".input_scale", ".activation_scale"};
  scheme.has_exponents = optional_string(config, "scale_fmt") == "ue8m0";
  scheme.source = "quant_method fp8";
  scheme.lists_few_exceptions = true;
  const std::string activation = optional_string(config, "activation_scheme").value_or("dynamic");
  if (activation != "static" && activation != "dynamic")
    fail("key 'activation_scheme' is '", activation, "', expected static or dynamic");
  const bool is_static = activation == "static";
  scheme.input = is_static ? InputQuantization::kStatic : InputQuantization::kDynamicToken;
  if (const Json* block = find_field(config, "weight_block_size")) {
    if (is_static) fail("activation_scheme static does not go with weight_block_size");
    std::tie(scheme.block_rows, scheme.block_columns) = parse_block("weight_block_size", block);
    scheme.strategy = Strategy::kBlock;
    std::ranges::reverse(scheme.scale_names);
    scheme.input = InputQuantization::kDynamicGroup;
    scheme.group = scheme.block_columns;
    scheme.infers_groups = true;
  }
  std::vector<std::string> except = strings_of(config, "ignored_layers");
  std::ranges::copy(strings_of(config, "modules_to_not_convert"), std::back_inserter(except));
  return all_but(std::move(except), ExceptionMatch::kParts, std::move(scheme));
}

/// "static" is AutoFP8's and Quark's only value. Without it the engine's options decide.
KvScheme read_cache_scheme(const QuantizationConfig& config) {
  const std::string where = config.where + ".kv_cache_scheme";
  const Json* value = find_field(config.json, "kv_cache_scheme");
  if (!value) return {.where = where};
  return fp8_or_other(where, [&](KvScheme& scheme) {
    scheme.strategy = Strategy::kTensor;
    if (value->is_object()) return parse_cache_args(*value, scheme);
    if (*value != "static") fail("found ", value->dump(), ", expected \"static\"");
  });
}

bool strip_cache(Json& config) {
  config.erase("kv_cache_scheme");
  return true;
}

}  // namespace fp8_method
}  // namespace

/// Scales of K and V have compressed-tensors' names.
const StoredForm& fp8_form() {
  static const StoredForm kForm{.name = "fp8",
                                .method = "fp8",
                                .keys = KeyPosition::kBeforeRope,
                                .read_schemes = fp8_method::read_schemes,
                                .read_cache_scheme = fp8_method::read_cache_scheme,
                                .strip_cache = fp8_method::strip_cache};
  return kForm;
}

}  // namespace kvcal
