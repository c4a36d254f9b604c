#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "quant/quant_args.h"

namespace kvcal {

/// Storage of a group's weights, in compressed-tensors' words (`CompressionFormat`).
enum class CompressionFormat {
  kDense,
  kNaiveQuantized,
  kFloatQuantized,
  kPackQuantized,
  kMxfp4PackQuantized,
};
std::string name_of(CompressionFormat format);

/// One config group: the quantization of its targets. Source: compressed-tensors
/// `QuantizationScheme`.
struct QuantScheme {
  std::vector<std::string> targets;  ///< class names, module names or "re:" patterns
  /// A recipe names every strategy, and every observer unless args are dynamic. Both nullopt:
  /// targets stay 16-bit. Only static inputs: the group is for attention.
  std::optional<QuantArgs> weights, input_activations;
  std::optional<CompressionFormat> format;  ///< as written; nullopt: see format_of
};

/// Format as written; else float-quantized for FP8 weights with quantized inputs, naive-quantized
/// without, and dense without weights. Source: compressed-tensors `infer_module_format`.
CompressionFormat format_of(const QuantScheme& scheme);

/// A config group as in config.json: format, input_activations, output_activations, targets,
/// weights.
Json to_json(const QuantScheme& scheme);

}  // namespace kvcal
