#include <algorithm>
#include <iterator>
#include <tuple>

#include "core/text.h"
#include "stored/quantization_config.h"
#include "stored/stored_format.h"

namespace kvcal {
namespace {

/// AutoFP8's format with one scale per tensor, and DeepSeek's with one per block.
ModuleSchemes read_fp8(const QuantizationConfig& source) {
  const Json& config = source.json;
  check_keys(source, split("quant_method activation_scheme weight_block_size ignored_layers "
                           "modules_to_not_convert modules_to_convert kv_cache_scheme fmt "
                           "scale_fmt dequantize store_dtype producer version",
                           ' '));
  if (const auto format = optional_string(config, "fmt"); format && !means_e4m3fn(*format))
    fail("key 'fmt' is '", *format, "', whose weights are not read; expected e4m3 (E4M3FN)");
  if (find_field(config, "modules_to_convert"))
    fail("key 'modules_to_convert' is not read; expected modules_to_not_convert");
  // Scales have AutoFP8's names or DeepSeek's: Ministral 3 has the latter with one scale per
  // tensor, others have the former with blocks.
  ModuleScheme scheme = scheme_of_method("fp8");
  scheme.scale_names = {".weight_scale", ".weight_scale_inv"};
  scheme.input_scale_names = {".input_scale", ".activation_scale"};
  scheme.has_exponents = optional_string(config, "scale_fmt") == "ue8m0";
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
KvScheme read_fp8_cache(const QuantizationConfig& config) {
  const std::string where = config.where + ".kv_cache_scheme";
  const Json* value = find_field(config.json, "kv_cache_scheme");
  if (!value) return {.where = where};
  return fp8_or_other(where, [&](KvScheme& scheme) {
    scheme.strategy = Strategy::kTensor;
    if (value->is_object()) return parse_cache_args(*value, scheme);
    if (*value != "static") fail("found ", value->dump(), ", expected \"static\"");
  });
}

}  // namespace

/// Scales of K and V have compressed-tensors' names.
extern constinit const StoredFormat kFp8Format{.name = "fp8",
                                               .method = "fp8",
                                               .keys = KeyPosition::kBeforeRope,
                                               .read_schemes = read_fp8,
                                               .read_cache_scheme = read_fp8_cache,
                                               .strip_cache = [](Json& config) {
                                                 config.erase("kv_cache_scheme");
                                                 return true;
                                               }};

}  // namespace kvcal
