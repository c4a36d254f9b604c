#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/model_dir.h"
#include "core/json.h"
#include "family/architecture.h"
#include "quant/cache_type.h"
#include "quant/fp8.h"
#include "quant/scale.h"
#include "stored/stored_format.h"

namespace kvcal {

/// All names that scales of attention (K, V, queries, softmax weights) and their zero points may
/// have in a checkpoint of this model, from any writer. They are no parameters of the forward pass.
std::set<std::string, std::less<>> kv_scale_names(const ModelConfig& config);

/// Scales by name, of a checkpoint or of a file of scales. Borrows.
struct ScaleTensors {
  std::string path;  ///< for messages
  /// Returns nullptr where no tensor has the name.
  std::function<const TensorView*(std::string_view name)> find;
  const Json& config;  ///< config.json, whose quantization_config leaves layers out
};
ScaleTensors scale_tensors_of(const ModelDir& model_dir);

/// Reads one layer's scales in any of kv_scale_formats; nullopt where the layer has none. Throws
/// Error where only K or only V has a scale, where a scale is not a finite positive F32, F16 or
/// BF16 value of the right shape, where a zero point is not 0, or where two formats hold different
/// scales. A kv_scale may equal the largest scale of another format.
std::optional<LayerKvScales> read_layer_scales(const ScaleTensors& tensors,
                                               const ModelConfig& config, int64_t layer);

/// The first of kv_scale_formats that a layer's scales use; nullptr where no layer has scales.
const KvScaleNames* find_kv_scale_format(const ScaleTensors& tensors, const ModelConfig& config);

/// Reads the scales of all layers, one entry a layer, empty without attention. A layer without
/// scales is ignored where quantization_config.ignore names it, or where ModelOpt's
/// kv_cache_quantized_layers does not, or where it is one of skipped, whose caches are told to stay
/// in 16 bits. nullopt where no layer has scales.
/// Throws Error as read_layer_scales does, and where another layer has no scales.
std::optional<std::vector<LayerKvScales>> read_all_scales(const ScaleTensors& tensors,
                                                          const ModelConfig& config,
                                                          std::span<const int64_t> skipped = {});
std::optional<std::vector<LayerKvScales>> read_checkpoint_scales(
    const ModelDir& model_dir, const ModelConfig& config, std::span<const int64_t> skipped = {});

/// Scales of channels, head by head, or fewer where they say the same: one a head where all
/// channels of each head share one, one where all do.
std::vector<Scale> joined_where_equal(std::vector<Scale> channels, int64_t heads);

/// Throws Error where the scheme says per tensor and a layer has a scale a head, or the reverse:
/// engines stop there.
void check_strategy(const KvScheme& scheme, const std::vector<LayerKvScales>& scales,
                    const ModelConfig& config);

/// Whether a file's model_type is this model's, or its wrapper's, with which config.json begins.
bool is_type_of(std::string_view model_type, const ModelConfig& config);

inline constexpr std::string_view kScalesJsonName = "kv_cache_scales.json";

/// Content of kv_cache_scales.json.
struct ScalesFile {
  KvDType dtype = KvDType::kFp8E4m3;  ///< of the cache: kFp8E4m3 or kFp8E5m2
  /// One scale a layer for K and V: the largest over all ranks.
  std::vector<LayerKvScales> layers;
  std::vector<std::vector<Scale>> ranks;  ///< [tensor-parallel rank][layer]
};

/// Reads the file with the checks of the engines' readers. Also reads float8_e5m2, which calibrate
/// writes and engines refuse. Throws Error naming file, rank and layer.
ScalesFile read_scales_json(const std::filesystem::path& path, const ModelConfig& config);

/// Converts E4M3FN scales for an E4M3FNUZ cache: doubles them, since each code has half the value
/// there. Engines do the same at load time (vLLM `BaseKVCacheMethod`, SGLang).
std::vector<LayerKvScales> doubled_for_fnuz(std::vector<LayerKvScales> scales);

/// Scale 1.0 for every layer: the default of engines that find no scales.
std::vector<LayerKvScales> unit_scales(const ModelConfig& config);

/// Key of config.json that names the FP8 format of the cache for which the KV scales are made.
/// Source: text-generation-inference, branch fp8_kvcache, `Weights.get_kv_cache_scaling_factor`.
inline constexpr std::string_view kDialectKey = "kv_cache_torch_dtype";

/// The format that a config.json names; nullopt where the key is absent. Throws Error for an
/// unknown word.
std::optional<fp8::Format> read_dialect(const Json& config);

/// The format that a model's config.json names; error messages begin with its path.
std::optional<fp8::Format> read_dialect(const ModelDir& model);

/// The cache for which `kvcal smooth` rewrote a model. The function is the same, but what mends one
/// cache may ruin others.
enum class SmoothedFor : uint8_t {
  kInt8,    ///< uniform codes: INT8 or INT4; no other cache loses by it
  kFp8E4m3  ///< FP8 E4M3 with one scale a layer or head, 1.0 or calibrated; others may be ruined
};
constexpr std::string_view name_of(SmoothedFor cache) {
  return cache == SmoothedFor::kInt8 ? "int8" : "fp8_e4m3";
}
/// The cache with this name, or nullopt.
std::optional<SmoothedFor> find_smoothed_for(std::string_view name);

/// The cache of a manifest's member "smoothing", of any shape; nullopt: none is named.
std::optional<SmoothedFor> smoothed_for(const Json& manifest);
/// The member "smoothing" of the manifest in a model's folder, or beside it, where several formats
/// share one; null where there is none. A manifest
/// that cannot be read has none.
Json smoothing_of_folder(const std::filesystem::path& folder);

/// Whether a cache of this type may lose by that rewrite.
bool may_be_ruined(SmoothedFor made, const CacheType& cache);

}  // namespace kvcal
