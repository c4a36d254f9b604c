#pragma once

#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "checkpoint/model_dir.h"
#include "model/kv_cache.h"

namespace kvcal {

/// Whether a tensor holds scales of attention (K, V, queries) or their zero points, ours or
/// others': no parameter and no part of the forward pass.
bool is_kv_scale(std::string_view tensor_name);

/// Scales that a checkpoint holds beside one layer's weights: `<attention>.k_scale` and `.v_scale`
/// (compressed-tensors), below `.k_proj` and `.v_proj` (ModelOpt), or `.kv_scale` for both (TGI),
/// and `.q_scale` where queries are quantized, too. nullopt where the layer has none. Throws Error
/// when it has only one of K and V, when a scale is not a finite positive F32, F16 or BF16 value of
/// the right shape, or a zero point is not 0.
std::optional<LayerKvScales> read_layer_scales(const ModelDir& model_dir, const ModelConfig& config,
                                               int64_t layer);

/// The scales of all layers, one entry a layer, empty where there is no attention. A layer that
/// quantization_config.ignore names and that has no scales is ignored. nullopt where the checkpoint
/// has none at all. Throws Error as read_layer_scales, and when another layer has no scales.
std::optional<std::vector<LayerKvScales>> read_checkpoint_scales(const ModelDir& model_dir,
                                                                 const ModelConfig& config);

/// What kv_cache_scales.json holds.
struct ScalesFile {
  KvDType dtype = KvDType::kFp8E4m3;  ///< the cache they are for: kFp8E4m3 or kFp8E5m2
  /// One value a layer for K and V together, the largest of all ranks.
  std::vector<LayerKvScales> layers;
};

/// Checked as the engines' readers check it; float8_e5m2 is read besides, which calibrate writes
/// and engines do not read. Throws Error naming file, rank and layer.
ScalesFile read_scales_json(const std::filesystem::path& path, const ModelConfig& config);

/// E4M3FN scales as an E4M3FNUZ cache needs them: doubled, since the same code stands for half the
/// value there. Engines do so when they load (vLLM `BaseKVCacheMethod`, SGLang).
std::vector<LayerKvScales> doubled_for_fnuz(std::vector<LayerKvScales> scales);

/// 1.0 for every layer: what an engine uses when it finds no scales.
std::vector<LayerKvScales> unit_scales(const ModelConfig& config);

}  // namespace kvcal
