#pragma once

#include "family/model_config.h"
#include "forward/layerwise_options.h"

namespace kvcal {

/// Sets a host's memory outside the next forward pass, and the most that the process can get. Call
/// it after all input is read. threads: 0 means one a CPU.
void set_process_memory(LayerwiseOptions& options, const ModelConfig& config, int threads);

}  // namespace kvcal
