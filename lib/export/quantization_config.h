#pragma once

#include "core/json.h"
#include "quant/calibration.h"

namespace kvcal {

/// "group_0", … → what each group of modules gets: the plan's groups in its order, and where
/// queries are quantized one for the attention class, before the groups of modules that come after
/// the first attention module. Empty where only the KV cache is quantized. Source:
/// compressed-tensors `QuantizationConfig.from_pretrained`.
Json config_groups(const Calibration& calibration);

/// config.json's quantization_config: the ten keys of compressed-tensors 0.19.0.
Json quantization_config(const Calibration& calibration);

}  // namespace kvcal
