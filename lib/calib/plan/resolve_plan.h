#pragma once

#include "core/diagnostics.h"
#include "family/model_config.h"
#include "quant/quant_plan.h"
#include "recipe/recipe.h"
#include "stored/read_model_config.h"

namespace kvcal {

/// Resolves a recipe to a plan for each module of a model. unrun: modules of its checkpoint that it
/// does not run, which recipes may name and which stay 16-bit.
/// The last modifier that matches a module decides; within a modifier, the first matching target by
/// this order: module names, regular expressions on names, class names, each alphabetically. ignore
/// takes precedence over all. Unlike in llm-compressor, a modifier that has only a kv_cache_scheme
/// does not take Linears from earlier ones.
/// Targets of the plan are those from which readers of config.json find it (readable_targets).
/// Throws Error, naming pattern or module, for a pattern that matches no module, a module that
/// cannot be quantized that way, attention modules that no engine can load together, and a plan
/// without effect. Source: compressed-tensors `apply_quantization_config`, `match_targets`.
QuantPlan resolve_plan(const Recipe& recipe, const ModelConfig& config, Diagnostics& diagnostics,
                       std::vector<UnrunModule> unrun = {});

/// Whether calibration needs text: KV cache, queries or static inputs are quantized.
bool needs_data(const QuantPlan& plan);
/// Whether the inputs of Linears are quantized with static scales.
bool has_static_inputs(const QuantPlan& plan);

}  // namespace kvcal
