#pragma once

#include "calib/module_patterns.h"
#include "quant/quant_plan.h"

namespace kvcal {

/// Whether a group is for attention modules: it quantizes inputs and no weights.
inline bool is_for_attention(const QuantScheme& scheme) {
  return !scheme.weights && scheme.input_activations;
}

/// Plan of each attention module, in layer order; empty where the recipe does not mention
/// attention. The last modifier that names a module decides, by a group for attention (queries,
/// keys and values), a kv_cache_scheme, or both where their args are equal; used collects the
/// deciding groups. Throws Error where the two differ in one modifier, where ignore leaves no
/// module, and for modules that no engine can load together.
std::vector<PlannedAttention> plan_attention(const Recipe& recipe, const NamedModules& modules,
                                             std::vector<const QuantScheme*>& used);

}  // namespace kvcal
