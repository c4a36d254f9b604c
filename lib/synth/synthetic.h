#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "core/diagnostics.h"
#include "core/file.h"
#include "core/json.h"
#include "core/tensor.h"
#include "family/model_config.h"

namespace kvcal {

struct SyntheticOptions {
  uint64_t seed = 0;
  std::optional<int64_t> num_layers = {};  ///< only the first layers
  std::optional<DType> dtype = {};         ///< F32, F16 or BF16; absent: config.json's, or BF16
  uint64_t max_shard_bytes = uint64_t{4} << 30;
  FamilyChoice family = {};  ///< of a model_type that is not known
  int threads = 0;           ///< 0: one for each core; the bytes do not depend on it
};

/// config.json of a synthetic checkpoint: config without quantization, with num_layers where given,
/// and the written dtype. Throws Error as parse_model_config does, and for more layers than config
/// has.
Json synthetic_config(const Json& config, const SyntheticOptions& options);

/// Dtype of weights in config.json; BF16 where that is not F32, F16 or BF16.
DType weight_dtype(const ModelConfig& config);

struct SyntheticCheckpoint {
  std::string model_type;
  int64_t num_layers = 0, num_tensors = 0, num_files = 0;
  uint64_t bytes = 0;  ///< of the tensors
  DType dtype = DType::kBF16;
};

/// Writes the text model of config with random weights into folder: config.json and
/// model.safetensors, or shards with their index. Memory stays at a few buffers for any size. Equal
/// config, seed, layers and dtype give equal tensors. Throws Error.
SyntheticCheckpoint write_synthetic_checkpoint(const Json& config, const SyntheticOptions& options,
                                               const fs::path& folder, Diagnostics& diagnostics);

}  // namespace kvcal
