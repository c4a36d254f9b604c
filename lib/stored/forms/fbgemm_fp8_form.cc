#include <array>

#include "stored/fp8_args.h"
#include "stored/stored_form.h"

namespace kvcal {
namespace {
namespace fbgemm_fp8 {

/// FP8 with a scale for each row. Inputs have one for each token, which activation_scale_ub bounds:
/// only engines let values beyond the bound saturate. Source: vLLM 0.32 `fbgemm_fp8.py`.
std::unique_ptr<ModuleSchemes> read_schemes(const QuantizationConfig& source, TargetMatcher) {
  const Json& config = source.json;
  constexpr std::array<std::string_view, 4> kKeys{"quant_method", "activation_scale_ub",
                                                  "modules_to_not_convert", "kv_cache_scheme"};
  check_keys(source, kKeys);
  ModuleScheme scheme;
  scheme.source = "quant_method fbgemm_fp8";
  scheme.lists_few_exceptions = true;
  scheme.strategy = Strategy::kChannel;
  scheme.unrun_input = "quant_method fbgemm_fp8 bounds the scales of inputs (activation_scale_ub)";
  return all_but(strings_of(config, "modules_to_not_convert"), ExceptionMatch::kParts,
                 std::move(scheme));
}

}  // namespace fbgemm_fp8
}  // namespace

const StoredForm& fbgemm_fp8_form() {
  static const StoredForm kForm{.name = "fbgemm_fp8",
                                .method = "fbgemm_fp8",
                                .read_schemes = fbgemm_fp8::read_schemes,
                                .read_cache_scheme = no_cache_scheme,
                                .strip_cache = keeps_config};
  return kForm;
}

}  // namespace kvcal
