#pragma once

#include <span>
#include <vector>

#include "core/diagnostics.h"
#include "model/layer_forward.h"
#include "model/model_config.h"
#include "quant/calibration.h"
#include "recipe/recipe.h"
#include "text/dataset.h"

namespace kvcal {

/// What later layers see of K and V while they are calibrated.
enum class KvForward {
  kQuantized,  ///< quantized with the layer's final scale, as they will be when served
  kExact,      ///< unquantized, as in llm-compressor and ModelOpt
};

/// Which layers a recipe leaves without scales: [num_hidden_layers], true for those without
/// attention. Throws Error for a target or ignore pattern that matches no module, and when no layer
/// is left.
std::vector<bool> ignored_layers(const Recipe& recipe, const ModelConfig& config);

/// Runs the samples through forward layer by layer and makes the scales the recipe asks for.
/// samples are those forward was made of, for messages. Throws Error naming layer, head, record and
/// token for NaN or Inf in K or V.
Calibration calibrate(LayerForward& forward, const ModelConfig& config, const Recipe& recipe,
                      std::span<const Sample> samples, KvForward kv_forward,
                      Diagnostics& diagnostics);

/// What a calibration of the recipe and model will hold, without any layer yet.
Calibration empty_calibration(const Recipe& recipe, const ModelConfig& config);

}  // namespace kvcal
