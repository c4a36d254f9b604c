#pragma once

#include <optional>
#include <string>
#include <vector>

#include "export/writer.h"

namespace kvcal {

/// scales of one module, each the largest of those that one of num_ranks engines in tensor parallel
/// holds: such an engine may use one scale for all of its heads. Rank r has heads [r * n, (r + 1) *
/// n); where there are more ranks than heads, several have the same one. One rank, or one scale:
/// as they are. Throws Error where the heads cannot be divided so.
std::vector<Scale> tied_over_ranks(const std::vector<Scale>& scales, int64_t num_ranks);

/// "<module>.k_scale" and ".v_scale" of every layer that is not ignored; where queries are
/// quantized also ".q_scale" and the three ".{q,k,v}_zero_point".
std::vector<std::string> attention_tensor_names(const Calibration& calibration);

/// The tensors of those names: scales [1], or [heads, 1, 1] with strategy attn_head, tied over
/// input.tp_size ranks, as float32 or in the dtype of the module's weights; zero points F8_E4M3
/// zeros of the same shape, which loaders of attention groups look for. Source: compressed-tensors
/// `initialize_attn_qparams`.
std::vector<Tensor> attention_tensors(const ExportInput& input);

/// Throws Error where rounding to the dtype of a module's weights leaves less of a scale than that
/// dtype's full precision: a subnormal scale may be off by half, and so would be everything it
/// multiplies.
void check_attention_scales_fit(const ExportInput& input);

/// What vLLM must be told of ignored layers; nullopt where there are none.
std::optional<std::string> ignored_layers_note(const Calibration& calibration);

/// Name of the file with the arguments that vLLM needs for ignored layers.
inline constexpr std::string_view kVllmArgumentsName = "vllm.yaml";

/// Its content where layers are ignored: vLLM reads from its arguments alone which layers keep a
/// 16-bit cache. Source: vLLM 0.32, `CacheConfig.kv_cache_dtype_skip_layers`,
/// `FlexibleArgumentParser.load_config_file`.
std::optional<std::string> vllm_arguments(const Calibration& calibration);

}  // namespace kvcal
