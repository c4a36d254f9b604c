#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "quant/quant_args.h"

namespace kvcal {

/// compressed-tensors' words for how a group's weights are stored (`CompressionFormat`).
enum class CompressionFormat { kDense, kNaiveQuantized, kFloatQuantized };
std::string name_of(CompressionFormat format);

/// One config group: what its targets get. Source: compressed-tensors `QuantizationScheme`.
struct QuantScheme {
  std::vector<std::string> targets;  ///< class names, module names or "re:" patterns
  /// In a recipe, strategies are always named, and observers unless args are dynamic. Neither:
  /// targets keep 16 bits. Inputs alone, static, are those of attention.
  std::optional<QuantArgs> weights, input_activations;
  std::optional<CompressionFormat> format;  ///< as written; null: what format_of says
};

/// With FP8 weights float-quantized, without quantized inputs naive-quantized; without weights
/// dense; or what is written. Source: compressed-tensors `infer_module_format`.
CompressionFormat format_of(const QuantScheme& scheme);

/// A config group as config.json has it: format, input_activations, output_activations, targets,
/// weights.
Json to_json(const QuantScheme& scheme);

}  // namespace kvcal
