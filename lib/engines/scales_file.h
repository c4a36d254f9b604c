#pragma once

#include <string>
#include <vector>

#include "engines/scale_loading.h"

namespace kvcal {

/// kv_cache_scales.json as the validators of SGLang and Aphrodite take it. Source: SGLang 0.5.23,
/// `QuantParamSchema` and `KVCacheQuantSchema`; Aphrodite 0.6 has the same.
struct ScalesFileContent {
  std::string rejection;  ///< why the validators fall back to 1.0 everywhere; empty: they do not
  std::vector<std::vector<float>> layers;  ///< one value a rank, [num_hidden_layers][tp_size]
};
ScalesFileContent read_scales_file(const std::filesystem::path& path, const ModelConfig& config,
                                   int64_t tp_size);

/// Whether the engine was given a file, and reads it for models of this type.
bool takes_scales_file(const VerifyCase& subject);

/// Applies a file of scales to the layers' values from the checkpoint, and reports where the engine
/// does not read the file or does not take its values. Sets loads to false where the engine stops.
void apply_scales_file(const VerifyCase& subject, std::vector<HeldLayer>& layers,
                       Findings& findings, bool& loads);

}  // namespace kvcal
