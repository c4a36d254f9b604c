#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/tensor.h"
#include "quant/calibration.h"
#include "quant/weight_scales.h"
#include "stored/stored_format.h"

namespace kvcal {

/// Names and shapes of the scales of FP8 weights beside "<module>.weight" in one format. See
/// docs/formats.md.
struct WeightScaleNames {
  std::string_view title;  ///< for messages: "ModelOpt"
  std::string_view block_suffix =
      "weight_scale";                 ///< of a scale a block; other scales are weight_scale
  bool scalars_have_no_dims = false;  ///< one scale is [] instead of [1]
  bool rows_have_one_dim = false;     ///< a scale a row is [out] instead of [out, 1]
  /// A scale a block is [rows of blocks, 1, columns of blocks, 1] instead of two dimensions.
  bool blocks_have_four_dims = false;

  std::string scale_name(const std::string& module, Strategy strategy) const;
  Shape scale_shape(const ScaleGrid& grid, Strategy strategy) const;
  Shape scalar_shape() const { return scalars_have_no_dims ? Shape{} : Shape{1}; }
};

/// The scheme that all quantized weights of a plan share, for formats that hold only one. Throws
/// Error, naming the module, where two weights have different schemes, or where an embedding
/// is quantized, which such formats cannot express. title: of the format.
LinearScheme one_scheme(const QuantPlan& plan, std::string_view title);

/// "weights of strategy channel with dynamic inputs", for messages.
std::string to_text(const LinearScheme& scheme);

/// Modules that stay 16-bit though others of their class do not, for formats that list them without
/// attention modules.
std::vector<std::string> excluded_modules(const QuantPlan& plan);

/// The compressed-tensors release with this layout (docs/formats.md).
inline constexpr std::string_view kCompressedTensorsVersion = "0.19.0";

/// Scheme of each group of modules, by "group_0", …: the plan's groups in order. Where queries are
/// quantized, a group for the attention class comes before the groups of modules that follow
/// the first attention module. Empty where only the KV cache is quantized. Source:
/// compressed-tensors `QuantizationConfig.from_pretrained`.
Json config_groups(const Calibration& calibration);

/// config.json's quantization_config: the ten keys of compressed-tensors 0.19.0.
Json quantization_config(const Calibration& calibration);

/// quantization_config in AMD Quark's words, without outputs of K and V. global: of all Linears but
/// those that exclude names. Source: AMD Quark 0.13's export.
Json quark_config(Json global, Json exclude);

}  // namespace kvcal
