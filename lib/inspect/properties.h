#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "stored/fp8_checkpoint.h"
#include "stored/weights.h"

namespace kvcal {

/// One property of a model, as `inspect` shows it.
struct Property {
  std::string key;
  Json value;
  std::string text;  ///< for people; empty: not worth a line
};
using Properties = std::vector<Property>;

/// The architecture as config.json and the checkpoint's tensors resolve it.
Properties model_properties(const ModelConfig& config, const Weights& weights);

/// The count of modules with FP8 weights, by how they are scaled and their inputs quantized.
Property quantization_property(const CheckpointQuantization& quantization);

/// Key and text of the properties that have a text, with spaces in place of underscores.
std::vector<std::pair<std::string, std::string>> shown(const Properties& properties);

}  // namespace kvcal
