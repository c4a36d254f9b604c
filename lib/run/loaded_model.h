#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/diagnostics.h"
#include "forward/decoder.h"
#include "run/devices.h"
#include "stored/fp8_checkpoint.h"
#include "tokenizers/tokenizer.h"

namespace kvcal {

/// Dtype and scales of a run's KV cache.
struct CacheOptions {
  std::string kv_cache_dtype = "auto";  ///< or a dtype by name
  std::string scales = {};     ///< file or folder whose scales replace the checkpoint's; or empty
  bool unit_scales = false;    ///< scale 1.0 in every layer
  bool fp8_attention = false;  ///< Q and softmax weights are FP8, too (fp8_attention.h)
};
/// Throws Error where options contradict each other.
void check(const CacheOptions& options);

/// A checkpoint ready to run: 16-bit or FP8 by its config.
struct LoadedModel {
  /// shared: a backend to run on, which must outlive this; null: opens its own. family: of a
  /// model_type that is not known.
  LoadedModel(const std::string& path, const DeviceOptions& device, bool has_tokenizer,
              Diagnostics& diagnostics, Backend* shared = nullptr, const FamilyChoice& family = {});

  std::string path;  ///< as given
  ModelDir model_dir;
  ModelConfig config;
  CheckpointQuantization quantization;
  Weights weights;
  std::unique_ptr<Tokenizer> tokenizer;  ///< null where not requested
  std::unique_ptr<Backend> own_backend;
  Backend& backend;
  Decoder decoder;
};

/// Bytes of caches that a run may fill: half of the free memory, since the rest is for the steps
/// themselves. nullopt where the system does not tell.
std::optional<uint64_t> cache_memory(const Backend& backend);

/// Cache dtype that an engine chooses by default: FP8 for a checkpoint with scales, unless its
/// config says otherwise, else the model's dtype. Throws Error where the config requests an
/// unsupported cache, or scales that are missing.
KvDType cache_dtype_of(const CacheOptions& options, const LoadedModel& model,
                       Diagnostics& diagnostics);
/// Scales of all layers; empty for a dtype that needs none. A note names the layers that are not
/// FP8.
std::vector<LayerKvScales> scales_of(const CacheOptions& options, const LoadedModel& model,
                                     KvDType dtype, Diagnostics& diagnostics);

}  // namespace kvcal
