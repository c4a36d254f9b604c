#pragma once

#include <optional>
#include <string>
#include <vector>

#include "export/writer.h"

namespace kvcal {

/// Scales of one module, each raised to the largest that the same tensor-parallel engine holds:
/// such an engine may use one scale for all of its heads. Rank r of num_ranks holds heads [r * n,
/// (r + 1) * n); with more ranks than heads, several ranks hold the same head. Unchanged for one
/// rank or one scale. Throws Error where the heads cannot be divided.
std::vector<Scale> tied_over_ranks(const std::vector<Scale>& scales, int64_t num_ranks);

/// "<module>.k_scale" and ".v_scale" of every layer that is not ignored; where queries are
/// quantized also ".q_scale" and the three ".{q,k,v}_zero_point".
std::vector<std::string> attention_tensor_names(const Calibration& calibration);

/// The tensors of those names. Scales are [1], or [heads, 1, 1] with strategy attn_head, tied over
/// input.tp_size ranks, in float32 or in the dtype of the module's weights. Zero points are F8_E4M3
/// zeros of the same shape, which loaders of attention groups look for. Source: compressed-tensors
/// `initialize_attn_qparams`.
std::vector<Tensor> attention_tensors(const ExportInput& input);

/// Throws Error where rounding a scale to the dtype of its module's weights makes it subnormal: it
/// would lose precision, and so would every value that it multiplies.
void check_attention_scales_fit(const ExportInput& input);

/// Arguments that vLLM needs for ignored layers, as a sentence; nullopt where no layer is ignored.
std::optional<std::string> ignored_layers_note(const Calibration& calibration);

/// Name of the file with the arguments that vLLM needs for ignored layers.
inline constexpr std::string_view kVllmArgumentsName = "vllm.yaml";

/// Content of kVllmArgumentsName; nullopt where no layer is ignored. vLLM reads only from its
/// arguments which layers keep a 16-bit cache. Source: vLLM 0.32,
/// `CacheConfig.kv_cache_dtype_skip_layers`, `FlexibleArgumentParser.load_config_file`.
std::optional<std::string> vllm_arguments(const Calibration& calibration);

}  // namespace kvcal
