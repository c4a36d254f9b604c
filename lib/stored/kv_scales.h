#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/model_dir.h"
#include "family/architecture.h"
#include "quant/kv_dtype.h"
#include "quant/layer_kv_scales.h"
#include "stored/kv_forms.h"
#include "stored/kv_scheme.h"

namespace kvcal {

/// The names that scales of attention (K, V, queries) and their zero points may have in a
/// checkpoint of this model, ours or others': no parameters and no part of the forward pass.
std::set<std::string, std::less<>> kv_scale_names(const ModelConfig& config);

/// Files that hold scales by name: a checkpoint's, or scales alone. Borrows.
struct ScaleTensors {
  std::string path;  ///< for messages
  /// nullptr where they have no tensor of that name.
  std::function<const TensorView*(std::string_view name)> find;
  const Json& config;  ///< config.json, whose quantization_config.ignore names layers
};
ScaleTensors scale_tensors_of(const ModelDir& model_dir);

/// Scales that a checkpoint holds beside one layer's weights, in any of kv_forms. nullopt where the
/// layer has none. Throws Error when it has only one of K and V, when a scale is not a finite
/// positive F32, F16 or BF16 value of the right shape, a zero point is not 0, or two forms hold
/// different scales; a kv_scale may be the largest of another form's.
std::optional<LayerKvScales> read_layer_scales(const ScaleTensors& tensors,
                                               const ModelConfig& config, int64_t layer);

/// The first of kv_forms that a layer's scales have; nullptr where no layer has scales.
const KvForm* find_form(const ScaleTensors& tensors, const ModelConfig& config);

/// The scales of all layers, one entry a layer, empty where there is no attention. A layer that
/// quantization_config.ignore names and that has no scales is ignored. nullopt where the checkpoint
/// has none at all. Throws Error as read_layer_scales, and when another layer has no scales.
std::optional<std::vector<LayerKvScales>> read_all_scales(const ScaleTensors& tensors,
                                                          const ModelConfig& config);
std::optional<std::vector<LayerKvScales>> read_checkpoint_scales(const ModelDir& model_dir,
                                                                 const ModelConfig& config);

/// Throws Error where the scheme says that scales are per tensor and a layer has one a head, or the
/// other way about: engines stop there.
void check_strategy(const KvScheme& scheme, const std::vector<LayerKvScales>& scales,
                    const ModelConfig& config);

/// Whether a file's model_type is this model's, or that of the wrapper around its text model, which
/// is what config.json begins with.
bool is_type_of(std::string_view model_type, const ModelConfig& config);

/// What kv_cache_scales.json holds.
struct ScalesFile {
  KvDType dtype = KvDType::kFp8E4m3;  ///< the cache they are for: kFp8E4m3 or kFp8E5m2
  /// One value a layer for K and V together, the largest of all ranks.
  std::vector<LayerKvScales> layers;
  std::vector<std::vector<Scale>> ranks;  ///< [tensor-parallel rank][layer]
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
