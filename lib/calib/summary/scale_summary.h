#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "family/model_config.h"
#include "quant/calibration.h"
#include "quant/damage_verdict.h"
#include "quant/image_magnitudes.h"
#include "quant/late_positions.h"
#include "quant/range_search.h"

namespace kvcal {

/// What codes lose of K or V of one layer.
struct SideErrors {
  CodeErrors calibrated, unit;  ///< with the layer's scales; with scale 1.0
};
struct LayerErrors {
  int64_t layer = 0;
  SideErrors k, v;
};

/// Growth of the largest magnitude of K or V of one layer in the last samples.
struct LateGrowth {
  double ratio = 0;  ///< amax of all samples / amax of the first from_samples - 1
  int64_t layer = 0;
  bool is_key = false;
  int64_t from_samples = 0, num_samples = 0;
};

/// Values that scale 1.0 clips of K or of V.
struct UnitClipping {
  double share = 0;             ///< of all values of the layers below
  std::vector<int64_t> layers;  ///< where any is clipped, ascending
};

/// Room that scale 1.0 leaves in the format's range, for text that was not seen. 0: no values.
struct UnitMargin {
  double largest_k = 0, largest_v = 0;  ///< of all layers
  /// The largest magnitude of the KV head where it is least: under the least code all its values
  /// become 0.
  double least_head_k = 0, least_head_v = 0;
  double largest_code = 0, least_code = 0;  ///< of the format: 448 and 2^-9 for E4M3FN
};

/// What the range of scale 1.0 does to K and V, from histograms alone. It says nothing of what the
/// cache costs the model, which is as much with scales that round as 1.0 does.
enum class UnitScale {
  kClips,   ///< 1.0 clips values
  kCoarse,  ///< 1.0 clips nothing, and in some layer its error is more than a tenth larger
  kAsGood,  ///< neither
};

/// The facts of a calibration that a reader needs to decide whether to use it.
struct ScaleSummary {
  std::vector<LayerErrors> layers;        ///< with scales and a cache of their own, in layer order
  std::optional<LateGrowth> growth;       ///< the largest; nullopt: fewer than two samples
  std::optional<LatePositions> late;      ///< nullopt: no layer, or not known
  std::optional<ImageMagnitudes> images;  ///< nullopt: all tokens are text
  /// What the cache costs, with the scales and with 1.0; nullopt: attention was not compared.
  std::optional<CacheDamage> predicted, predicted_unit;
  UnitScale unit = UnitScale::kAsGood;
  UnitClipping clipped_k, clipped_v;
  UnitMargin margin = {};
  double unit_error_ratio = 1;  ///< the largest error of 1.0 over that of the layer's scales
  /// Of one token, all layers in FP8 or INT8; of 16 bits twice as many.
  uint64_t cache_bytes_fp8 = 0;
  KvFormat format = fp8::Format::kE4m3Fn;   ///< codes that the scales are for
  std::vector<int64_t> layers_16_bit = {};  ///< with a cache of their own that stays so, ascending
  uint64_t cache_bytes_16_bit = 0;          ///< of one token, of these layers
  /// Of one token, with these layers in 16 bits.
  uint64_t cache_bytes() const { return cache_bytes_fp8 + cache_bytes_16_bit / 2; }
};

/// nullopt: the calibration has no scales of K and V, or no statistics of them. longest_sample: of
/// the calibration, in tokens; 0: not known.
std::optional<ScaleSummary> summarize_scales(const Calibration& calibration,
                                             const ModelConfig& config, int64_t longest_sample);

/// The KL that a cache costs the model, from what calibration saw of attention: twice the mean over
/// the layers of the KL that it makes of their softmax weights, where a layer in 16 bits makes
/// none. It tells apart caches that serve, dull and ruin a model, and is within a factor of two of
/// most measured KLs: SmolLM2-135M 0.012, measured 0.007; with outliers of 64, 256 and 1024 in K
/// and scale 1.0 0.022, 0.30 and 0.62, measured 0.030, 0.27 and 0.45; Qwen2.5-Coder-1.5B 0.28,
/// measured 0.23 to 0.37; with its first layer in 16 bits 0.029, measured 0.007. nullopt: a layer
/// with a cache of its own was not compared.
std::optional<CacheDamage> predicted_damage(const Calibration& calibration,
                                            const ModelConfig& config,
                                            std::vector<AttentionError> AttentionDamage::*scales);

/// The layers with the largest errors of K or V with the calibrated scales, the worst first.
std::vector<const LayerErrors*> worst_layers(const ScaleSummary& summary, size_t most);

/// The value of "summary" in a manifest (docs/formats.md).
Json to_json(const ScaleSummary& summary);

/// A verdict on the range of scale 1.0, a line of English.
std::string unit_scale_text(const ScaleSummary& summary);
/// Its margin: "largest K 25.3 and V 4.1 of 448, ...".
std::string unit_margin_text(const UnitMargin& margin);

}  // namespace kvcal
