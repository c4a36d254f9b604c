#pragma once

#include "family/model_config.h"
#include "forward/layerwise_options.h"

namespace kvcal {

/// Fills in what a host's process takes beside the forward pass that follows, and the most it can
/// have. To be called when all is read. threads: 0 means one a CPU.
void set_process_memory(LayerwiseOptions& options, const ModelConfig& config, int threads);

}  // namespace kvcal
