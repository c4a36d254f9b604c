#pragma once

#include "core/diagnostics.h"
#include "family/model_config.h"
#include "quant/quant_plan.h"
#include "recipe/recipe.h"
#include "stored/unrun_modules.h"

namespace kvcal {

/// The plan of a recipe for each module of a model; unrun: the modules of its checkpoint that it
/// does not run, which recipes may name and which keep 16 bits. The last of several modifiers that
/// matches a module decides, and of one modifier's targets the first of: its name, regular
/// expressions on names, class names, each in alphabetical order; ignore goes before all. Unlike
/// llm-compressor's, a modifier that has a kv_cache_scheme alone takes nothing from Linears. Throws
/// Error, naming pattern or module, for a pattern that matches no module, a module that cannot be
/// quantized so, attention modules that no engine can load together, and a plan without effect.
/// Source: compressed-tensors `apply_quantization_config`, `match_targets`. The plan's targets are
/// those that readers of config.json find it by (readable_targets).
QuantPlan resolve_plan(const Recipe& recipe, const ModelConfig& config, Diagnostics& diagnostics,
                       std::vector<UnrunModule> unrun = {});

/// Whether calibration needs text: KV cache, queries or static inputs are quantized.
bool needs_data(const QuantPlan& plan);
/// Whether the inputs of Linears are quantized with static scales.
bool has_static_inputs(const QuantPlan& plan);

}  // namespace kvcal
