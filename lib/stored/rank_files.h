#pragma once

#include <filesystem>

#include "family/model_config.h"
#include "stored/stored_form.h"

namespace kvcal {

/// Whether folder holds rank files: "rank<N>.safetensors" or "rank<N>.npz", or such a name after
/// "_", "-" or ".". False where it is no folder.
bool has_rank_files(const std::filesystem::path& folder);

/// The KV scales of a TensorRT-LLM checkpoint, as AMMO, ModelOpt (AMMO's later name) and
/// TensorRT-LLM's converters write it, one file a rank.
///
/// A scale is the tensor whose name ends in "kv_cache_scaling_factor", one F32, F16, BF16 or F64
/// element, with the layer as its only decimal part: "transformer.layers.0.attention.…" in
/// safetensors, "_np:layers:0:attention:…" in npz. Where a layer has "k_cache_…" and "v_cache_…"
/// alone, the larger counts, as for TensorRT-LLM. "kv_cache_rcp_…", 1 / scale, is not read. The
/// scale is amax / 448 of the outputs of k_proj and v_proj, so K was seen before RoPE.
/// Only early AMMO releases write it as it is: later ones 1.0 for every layer, ModelOpt then
/// nothing below 1.0.
///
/// config.json's `mapping`, or what AMMO wrote beside npz files, `<decoder>_tp<N>.json`, says how
/// many files there must be: rank = stage * tp_size + tensor-parallel rank. Each pipeline stage
/// numbers its layers from 0; the first stages have one more where the layers do not divide evenly.
/// Where neither file says it, every file is a tensor-parallel rank with all layers.
///
/// Throws Error naming file and tensor or layer: no rank files; ranks that are missing, twice there
/// or too many; files of two formats; a cache that is not FP8 by kv_cache_quant_algo (INT8's scales
/// are amax / 127; null or no such key is accepted); a mapping or number of layers that cannot be;
/// a layer that is missing, twice there or not the model's; a tensor of another size or dtype; a
/// scale that is not finite and positive; a file that NpzFile or SafetensorsFile refuses.
///
/// Source: vLLM at 40d2e62, examples/fp8/extract_scales.py `_kv_scales_extractor` (names, ranks).
/// TensorRT-LLM, docs/source/architecture/checkpoint.md (config.json), `Mapping.pp_layers`,
/// `preprocess_weights` (K and V apart). AMMO and ModelOpt, torch/export: `weights_to_npz` (names),
/// `export_model_config` (`<decoder>_tp<N>.json`), `_split_model_config_for_pp` (stages),
/// `get_kv_cache_scaling_factor` (values).
RankScales read_rank_files(const std::filesystem::path& folder, const ModelConfig& config);

}  // namespace kvcal
