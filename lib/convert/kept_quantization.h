#pragma once

#include <optional>

#include "checkpoint/model_dir.h"
#include "export/writer.h"
#include "family/model_config.h"

namespace kvcal {

/// Configs of a checkpoint's quantized weights (and queries), without K and V, which the form's
/// strip_cache removes. nullopt where weights are 16-bit.
std::optional<KeptQuantization> read_kept_quantization(const ModelDir& model);

/// Whether an output of format keeps the weights; with joined formats, all must keep them.
bool keeps_weights(const KeptQuantization& kept, std::string_view format);

/// Takes queries out of the description, for outputs without their scales: readers would look for
/// them. What describes nothing then is reset. Returns whether any were described.
bool strip_queries(std::optional<KeptQuantization>& kept);

}  // namespace kvcal
