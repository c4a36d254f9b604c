#include <algorithm>

#include "core/text.h"
#include "quant/module_target.h"
#include "stored/integer_matrix.h"
#include "stored/quantization_config.h"
#include "stored/stored_format.h"

namespace kvcal {
namespace {

/// SGLang's INT8: I8 weights with a scale for each row, weight_scale [out, 1], and inputs with one
/// for each token. Entries of ignore are names or patterns as compressed-tensors has them. Source:
/// SGLang 0.5.23 `W8A8Int8Config`.
ModuleSchemes read_w8a8_int8(const QuantizationConfig& source) {
  check_keys(source, split("quant_method ignore is_dynamic packed_modules_mapping", ' '));
  ModuleScheme scheme = scheme_of_method("w8a8_int8");
  scheme.storage = packed_integers({.is_packed = false});
  scheme.unrun_input = scheme.source + " quantizes inputs to INT8";
  std::vector<std::string> ignore = strings_of(source.json, "ignore");
  for (const std::string& pattern : ignore) check_target(pattern);
  return [ignore = std::move(ignore),
          scheme = std::move(scheme)](const ModuleName& module) -> const ModuleScheme* {
    const bool is_ignored = std::ranges::any_of(ignore, [&](const std::string& pattern) {
      return matches_target(pattern, module.name) ||
             (!module.alias.empty() && matches_target(pattern, module.alias));
    });
    return module.class_name == "Embedding" || is_ignored ? nullptr : &scheme;
  };
}

}  // namespace

extern constinit const StoredFormat kW8a8Int8Format{
    .name = "w8a8_int8", .method = "w8a8_int8", .read_schemes = read_w8a8_int8};

}  // namespace kvcal
