#include "core/text.h"
#include "stored/coded_matrix.h"
#include "stored/stored_format.h"

namespace kvcal {
namespace {

ModuleSchemes read_bitsandbytes(const QuantizationConfig& source) {
  const Json& config = source.json;
  check_keys(source,
             split("quant_method load_in_4bit load_in_8bit _load_in_4bit _load_in_8bit "
                   "llm_int8_skip_modules llm_int8_threshold llm_int8_has_fp16_weight "
                   "llm_int8_enable_fp32_cpu_offload bnb_4bit_quant_type "
                   "bnb_4bit_compute_dtype bnb_4bit_quant_storage bnb_4bit_use_double_quant",
                   ' '));
  const bool is_4bit = optional_bool(config, "load_in_4bit").value_or(false);
  if (is_4bit == optional_bool(config, "load_in_8bit").value_or(false))
    fail("keys 'load_in_4bit' and 'load_in_8bit' are both ", is_4bit ? "true" : "false",
         ", expected one of them");
  const std::string storage = optional_string(config, "bnb_4bit_quant_storage").value_or("uint8");
  if (is_4bit && storage != "uint8")
    fail("key 'bnb_4bit_quant_storage' is '", storage, "', which is not read; expected uint8");
  ModuleScheme scheme = scheme_of_method("bitsandbytes");
  scheme.storage = is_4bit ? bitsandbytes_4bit() : bitsandbytes_8bit();
  return all_but(strings_of(config, "llm_int8_skip_modules"), ExceptionMatch::kParts,
                 std::move(scheme));
}

}  // namespace

extern constinit const StoredFormat kBitsandbytesFormat{
    .name = "bitsandbytes", .method = "bitsandbytes", .read_schemes = read_bitsandbytes};

}  // namespace kvcal
