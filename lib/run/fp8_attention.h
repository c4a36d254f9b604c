#pragma once

#include <vector>

#include "family/model_config.h"
#include "quant/cache_type.h"
#include "quant/layer_kv_scales.h"

namespace kvcal {

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
