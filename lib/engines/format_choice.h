#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/diagnostics.h"

namespace kvcal {

/// The fewest formats, as --format names them, of which each engine ("vllm", "sglang@0.5.23") uses
/// the KV scales for models of a type; "compressed-tensors+scales-json" where the engine takes
/// kv_cache_scales.json beside a checkpoint with scales. has_weights: the output has quantized
/// weights, too. Warns of an engine that was not run with such models. Throws Error for an engine
/// that reads no format, with the reason and the engines that read one.
std::vector<std::string> formats_for(const std::vector<std::string>& engines,
                                     std::string_view model_type, bool has_weights,
                                     Diagnostics& diagnostics);

}  // namespace kvcal
