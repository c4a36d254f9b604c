#include <algorithm>
#include <iterator>

#include "core/text.h"
#include "stored/quantization_config.h"
#include "stored/stored_format.h"

namespace kvcal {
namespace {

/// MXFP8 with fp8's names (Inkling 2, MiniMax): a power of two for each 32 columns, U8 exponents in
/// weight_scale_inv. Blocks are always of 1 x 32, whatever the config says elsewhere. Source:
/// transformers 5.24 `Fp8Dequantize`, SGLang 0.5.23 `Fp8Config.from_config`.
ModuleSchemes read_mxfp8(const QuantizationConfig& source) {
  const Json& config = source.json;
  check_keys(source, split("quant_method activation_scheme weight_block_size ignored_layers "
                           "modules_to_not_convert fmt scale_fmt dequantize packed_modules_mapping",
                           ' '));
  if (const auto format = optional_string(config, "fmt"); format && !means_e4m3fn(*format))
    fail("key 'fmt' is '", *format, "', whose weights are not read; expected e4m3 (E4M3FN)");
  ModuleScheme scheme = scheme_of_method("mxfp8");
  scheme.scale_names = {".weight_scale_inv", ".weight_scale"};
  scheme.has_exponents = true;
  scheme.strategy = Strategy::kBlock;
  scheme.block_rows = 1;
  scheme.block_columns = 32;
  if (const Json* block = find_field(config, "weight_block_size"))
    if (parse_block("weight_block_size", block) != std::pair<int64_t, int64_t>(1, 32))
      fail("key 'weight_block_size' is ", block->dump(), ", expected [1,32] for MXFP8");
  scheme.unrun_input = scheme.source + " quantizes inputs to MXFP8";
  std::vector<std::string> except = strings_of(config, "ignored_layers");
  std::ranges::copy(strings_of(config, "modules_to_not_convert"), std::back_inserter(except));
  return all_but(std::move(except), ExceptionMatch::kParts, std::move(scheme));
}

}  // namespace

extern constinit const StoredFormat kMxfp8Format{
    .name = "mxfp8", .method = "mxfp8", .read_schemes = read_mxfp8};

}  // namespace kvcal
