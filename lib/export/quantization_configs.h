#pragma once

#include <string_view>

#include "core/json.h"
#include "quant/calibration.h"
#include "stored/stored_format.h"

namespace kvcal {

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

/// The names that Quark's form has for the KV scales of a model. config: config.json; has_weights:
/// its Linears are quantized.
const KvScaleNames& quark_names(const Json& config, bool has_weights);

}  // namespace kvcal
