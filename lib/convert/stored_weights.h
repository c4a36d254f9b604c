#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "core/diagnostics.h"
#include "quant/calibration.h"
#include "stored/fp8_checkpoint.h"
#include "stored/read_model_config.h"

namespace kvcal {

/// Arguments of a cache of such codes, with scales of that strategy, and with the observer of a
/// kv_cache_scheme (written, may be null). Throws Error for arguments that such a cache cannot
/// have.
QuantArgs cache_args(const Json& written, Strategy strategy, const KvFormat& format);

/// Schemes of quantized modules, by their names in the checkpoint, without targets.
using ModuleSchemeMap = std::map<std::string, QuantScheme, std::less<>>;
/// Schemes of a checkpoint's FP8 weights.
ModuleSchemeMap fp8_schemes(const CheckpointQuantization& weights);

/// Plan that quantizes each module by its scheme. cache: arguments of K and V; nullopt: no scales.
/// ignored: attention modules without scales. Throws Error where neither weights nor cache are
/// quantized.
QuantPlan plan_of_modules(const ModelDir& model, const ModelConfig& config,
                          const ModuleSchemeMap& schemes, const std::optional<QuantArgs>& cache,
                          const std::vector<std::string>& ignored, Diagnostics& diagnostics);

/// Sets the observers of these groups from recipe.config_groups in a kvcal manifest, where the plan
/// has only defaults.
void take_observers(const Json& manifest, QuantPlan& plan);

/// Adds the source's scales of FP8 weights and their inputs to a calibration with this plan. Throws
/// Error, naming the module, where the source lacks a scale of the plan.
void add_stored_weights(const CheckpointQuantization& weights, Calibration& calibration);

}  // namespace kvcal
