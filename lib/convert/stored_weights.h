#pragma once

#include <optional>
#include <string>

#include "core/diagnostics.h"
#include "quant/calibration.h"
#include "stored/fp8_checkpoint.h"
#include "stored/unrun_modules.h"

namespace kvcal {

/// The arguments of an FP8 cache whose scales have that strategy, with the observer of a
/// kv_cache_scheme as it is written; written may be null. Throws Error for what such a cache cannot
/// have.
QuantArgs cache_args(const Json& written, Strategy strategy);

/// The plan that quantizes each module as the checkpoint has it quantized.
/// cache: of K and V; nullopt: they have no scales. ignored: attention modules without them. Throws
/// Error where neither is quantized.
QuantPlan plan_of_checkpoint(const ModelDir& model, const ModelConfig& config,
                             const CheckpointQuantization& weights,
                             const std::optional<QuantArgs>& cache,
                             const std::vector<std::string>& ignored, Diagnostics& diagnostics);

/// The observers that a run of ours had for these groups, by recipe.config_groups of its manifest,
/// in the place of what a recipe that names none has.
void take_observers(const Json& manifest, QuantPlan& plan);

/// Puts the scales that the source has of its FP8 weights and of their inputs into a calibration
/// that has the plan. Throws Error, naming the module, where the plan has what the source has not.
void add_stored_weights(const CheckpointQuantization& weights, Calibration& calibration);

}  // namespace kvcal
