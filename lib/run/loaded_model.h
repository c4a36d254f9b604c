#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/diagnostics.h"
#include "forward/decoder.h"
#include "run/devices.h"
#include "stored/fp8_checkpoint.h"
#include "tokenizers/tokenizer.h"

namespace kvcal {

/// How the KV cache of a run is made.
struct CacheOptions {
  std::string kv_cache_dtype = "auto";  ///< or a dtype by name
  std::string scales = {};   ///< a file or folder whose scales replace the checkpoint's; or empty
  bool unit_scales = false;  ///< scale 1.0 in every layer
};
/// Throws Error where options contradict each other.
void check(const CacheOptions& options);

/// A checkpoint ready to run: 16-bit or FP8 as its config says.
struct LoadedModel {
  /// shared: a backend to run on, which must outlive this; null: one of its own.
  LoadedModel(const std::string& path, const DeviceOptions& device, bool has_tokenizer,
              Diagnostics& diagnostics, Backend* shared = nullptr);

  std::string path;  ///< as given
  ModelDir model_dir;
  ModelConfig config;
  CheckpointQuantization quantization;
  Weights weights;
  std::unique_ptr<Tokenizer> tokenizer;  ///< null where not asked for
  std::unique_ptr<Backend> own_backend;
  Backend& backend;
  Decoder decoder;
};

/// The cache that an engine picks on its own: FP8 for a checkpoint that has scales, unless its
/// config says otherwise, else the model's dtype. Throws Error where the config asks for a cache
/// that is not supported, or for scales that are not there.
KvDType cache_dtype_of(const CacheOptions& options, const LoadedModel& model,
                       Diagnostics& diagnostics);
/// Empty for a dtype that needs none. A note names the layers that are not FP8.
std::vector<LayerKvScales> scales_of(const CacheOptions& options, const LoadedModel& model,
                                     KvDType dtype, Diagnostics& diagnostics);

}  // namespace kvcal
