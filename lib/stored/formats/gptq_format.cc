#include <optional>
#include <string>

#include "core/registry.h"
#include "core/text.h"
#include "stored/dynamic_schemes.h"
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

ModuleScheme gptq_scheme(const GptqArgs& args) {
  ModuleScheme scheme = scheme_of_method("gptq");
  scheme.storage = gptq_integers(args);
  return scheme;
}

ModuleSchemes read_gptq(const QuantizationConfig& source) {
  const Json& config = source.json;
  check_keys(source, split("quant_method bits group_size desc_act sym lm_head static_groups "
                           "checkpoint_format damp_percent pack_dtype true_sequential "
                           "is_marlin_format dynamic quantization meta modules_to_not_convert "
                           "format method model_name_or_path model_file_base_name",
                           ' '));
  const GptqArgs args =
      args_of(config, {.bits = 0, .stores_less_one = format_of(config) == "gptq"});
  return dynamic_schemes(find_field(config, "dynamic"),
                         strings_of(config, "modules_to_not_convert"), gptq_scheme(args),
                         [&](const Json& entry) { return gptq_scheme(args_of(entry, args)); });
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
