#pragma once

#include <filesystem>

#include "family/model_config.h"
#include "stored/stored_form.h"

namespace kvcal {

/// Whether folder holds rank files: "rank<N>.safetensors" or "rank<N>.npz", or such a name after
/// "_", "-" or ".". False where it is no folder.
bool has_rank_files(const std::filesystem::path& folder);

/// Reads the KV scales of a TensorRT-LLM checkpoint, as AMMO, ModelOpt (AMMO's later name) and
/// TensorRT-LLM's converters write it, one file a rank.
///
/// A scale is a tensor whose name ends in "kv_cache_scaling_factor": one F32, F16, BF16 or F64
/// element, with the layer as the only decimal part of the name: "transformer.layers.0.attention.…"
/// in safetensors, "_np:layers:0:attention:…" in npz. A layer with only "k_cache_…" and "v_cache_…"
/// gets the larger of both, as in TensorRT-LLM. "kv_cache_rcp_…", 1 / scale, is not read. The scale
/// is amax / 448 of the outputs of k_proj and v_proj, so K was observed before RoPE. Only early
/// AMMO releases write the measured value: later ones write 1.0 for every layer, and ModelOpt
/// raises values below 1.0 to 1.0.
///
/// The number of files follows from config.json's `mapping`, or from `<decoder>_tp<N>.json` beside
/// AMMO's npz files: rank = stage * tp_size + tensor-parallel rank. Each pipeline stage numbers its
/// layers from 0; the first stages have one layer more where the division leaves a remainder.
/// Without either file, every file is a tensor-parallel rank with all layers.
///
/// Throws Error naming file and tensor or layer for: no rank files; missing, duplicate or surplus
/// ranks; files of two formats; a cache that is not FP8 by kv_cache_quant_algo (INT8's scales are
/// amax / 127; null or an absent key is accepted); an impossible mapping or number of layers; a
/// layer that is missing, duplicate or not the model's; a tensor of another size or dtype; a scale
/// that is not finite and positive; a file that NpzFile or SafetensorsFile refuses.
///
/// Source: vLLM at 40d2e62, examples/fp8/extract_scales.py `_kv_scales_extractor` (names, ranks).
/// TensorRT-LLM, docs/source/architecture/checkpoint.md (config.json), `Mapping.pp_layers`,
/// `preprocess_weights` (separate K and V). AMMO and ModelOpt, torch/export: `weights_to_npz`
/// (names), `export_model_config` (`<decoder>_tp<N>.json`), `_split_model_config_for_pp` (stages),
/// `get_kv_cache_scaling_factor` (values).
RankScales read_rank_files(const std::filesystem::path& folder, const ModelConfig& config);

}  // namespace kvcal
