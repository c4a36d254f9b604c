#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/diagnostics.h"
#include "family/model_config.h"
#include "forward/decoder.h"
#include "quant/cache_type.h"
#include "quant/kv_format.h"
#include "quant/scale.h"
#include "run/devices.h"
#include "stored/fp8_checkpoint.h"
#include "tokenizers/tokenizer.h"

namespace kvcal {

/// Dtype and scales of a run's KV cache.
struct CacheOptions {
  std::string kv_cache_dtype = "auto";  ///< or a type by name
  std::string scales = {};   ///< file or folder whose scales replace the checkpoint's; or empty
  bool unit_scales = false;  ///< scale 1.0 in every layer
  /// Layers whose cache stays in 16 bits, beside those that the checkpoint leaves out.
  std::vector<int64_t> skip_layers = {};
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

/// Cache type that an engine chooses by default: FP8 for a checkpoint with scales, unless its
/// config says otherwise, else the model's dtype. Throws Error where the config requests an
/// unsupported cache, or scales that are missing.
CacheType cache_type_of(const CacheOptions& options, const LoadedModel& model,
                        Diagnostics& diagnostics);
/// One scale of K and one of V a layer: the largest of its heads.
std::vector<LayerKvScales> with_joined_heads(std::vector<LayerKvScales> layers);
/// Scales as the cache's, of the same amax: a simulated format has one a layer, but INT8 those of
/// INT8 as they are. made_for: E4M3FN or INT8; of INT8 one or one a head where the cache is
/// another.
std::vector<LayerKvScales> scales_as(const CacheType& type, std::vector<LayerKvScales> layers,
                                     const KvFormat& made_for = fp8::Format::kE4m3Fn);
/// Marks layers that engines leave in 16 bits in a cache of the type as ignored. scales: one entry
/// a layer.
void leave_plain(std::vector<LayerKvScales>& scales, const CacheType& type,
                 const ModelConfig& config);
/// An entry a layer of a quantized cache, without scales where the type needs none; empty of
/// others. Scales of a simulated format stand for the amax of the source's FP8 scales, one a layer.
/// A note names the layers that are not quantized, but for those that leave_plain marks.
std::vector<LayerKvScales> scales_of(const CacheOptions& options, const LoadedModel& model,
                                     const CacheType& type, Diagnostics& diagnostics);

/// Scales of a cache whose attention runs in FP8, as vLLM's CUDA backends do with an E4M3 cache:
///
/// - Queries become codes of q_scale; without one, of 1.0. Of scales of attention heads, the
/// largest
///   of those that share a KV head holds for them. Source: vLLM 0.32 `Attention.forward`,
///   `query_quant`; `BaseKVCacheMethod.process_weights_after_loading`;
///   `CompressedTensorsKVCacheMethod`, `_tp_aware_loader`.
/// - Softmax weights become codes of 1/256. Source: vLLM 0.32 `kernel_unified_attention` (Triton),
///   p_scale, and FlashAttention 3, Max_offset. No backend reads prob_output_scale: vLLM loads it
///   as _prob_scale.
///
/// Throws Error for another type, whose queries vLLM leaves alone, and for latent attention.
std::vector<LayerKvScales> with_fp8_attention(std::vector<LayerKvScales> scales,
                                              const CacheType& type, const ModelConfig& config);

}  // namespace kvcal
