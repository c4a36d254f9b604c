#include "core/text.h"
#include "stored/stored_format.h"

namespace kvcal {
namespace {

/// FP8 with a scale for each row. Inputs have one for each token, which activation_scale_ub bounds:
/// only engines let values beyond the bound saturate. Source: vLLM 0.32 `fbgemm_fp8.py`.
ModuleSchemes read_fbgemm(const QuantizationConfig& source) {
  check_keys(source, split("quant_method activation_scale_ub modules_to_not_convert "
                           "kv_cache_scheme",
                           ' '));
  ModuleScheme scheme = scheme_of_method("fbgemm_fp8");
  scheme.strategy = Strategy::kChannel;
  scheme.unrun_input = scheme.source + " bounds the scales of inputs (activation_scale_ub)";
  return all_but(strings_of(source.json, "modules_to_not_convert"), ExceptionMatch::kParts,
                 std::move(scheme));
}

}  // namespace

extern constinit const StoredFormat kFbgemmFp8Format{
    .name = "fbgemm_fp8", .method = "fbgemm_fp8", .read_schemes = read_fbgemm};

}  // namespace kvcal
