#pragma once

#include <optional>

#include "checkpoint/model_dir.h"
#include "export/writer.h"
#include "family/model_config.h"

namespace kvcal {

/// The configs of a checkpoint's quantized weights (and queries), from which the form's strip_cache
/// removed K and V. nullopt where weights have 16 bits.
std::optional<KeptQuantization> read_kept_quantization(const ModelDir& model);

/// The source's FP8 weights where it is one that is calibrated as it is (DeepSeek's form).
std::optional<KeptQuantization> kept_weights(const ModelDir& model, const ModelConfig& config);

/// Whether weights stay as they are in an output of format, of all formats where several are
/// joined.
bool keeps_weights(const KeptQuantization& kept, std::string_view format);

}  // namespace kvcal
