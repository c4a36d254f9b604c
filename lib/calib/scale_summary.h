#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "family/model_config.h"
#include "quant/calibration.h"
#include "quant/histogram_search.h"
#include "quant/late_positions.h"

namespace kvcal {

/// What FP8 codes lose of K or V of one layer.
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

/// Whether calibrated scales are worth having, from histograms alone.
enum class UnitScale {
  kClips,   ///< 1.0 clips values
  kCoarse,  ///< 1.0 clips nothing, and in some layer its error is more than a tenth larger
  kAsGood,  ///< neither
};

/// The facts of a calibration that a reader needs to decide whether to use it.
struct ScaleSummary {
  std::vector<LayerErrors> layers;    ///< with scales and a cache of their own, in layer order
  std::optional<LateGrowth> growth;   ///< the largest; nullopt: fewer than two samples
  std::optional<LatePositions> late;  ///< nullopt: no layer, or not known
  UnitScale unit = UnitScale::kAsGood;
  UnitClipping clipped_k, clipped_v;
  double unit_error_ratio = 1;   ///< the largest error of 1.0 over that of the layer's scales
  uint64_t cache_bytes_fp8 = 0;  ///< of one token, all layers in FP8; of 16 bits twice as many
  std::vector<int64_t> layers_16_bit = {};  ///< with a cache of their own that stays so, ascending
  uint64_t cache_bytes_16_bit = 0;          ///< of one token, of these layers
  /// Of one token, with these layers in 16 bits.
  uint64_t cache_bytes() const { return cache_bytes_fp8 + cache_bytes_16_bit / 2; }
};

/// nullopt: the calibration has no scales of K and V, or no statistics of them. longest_sample: of
/// the calibration, in tokens; 0: not known.
std::optional<ScaleSummary> summarize_scales(const Calibration& calibration,
                                             const ModelConfig& config, int64_t longest_sample);

/// The layers with the largest errors of K or V with the calibrated scales, the worst first.
std::vector<const LayerErrors*> worst_layers(const ScaleSummary& summary, size_t most);

/// The value of "summary" in a manifest (docs/formats.md).
Json to_json(const ScaleSummary& summary);

/// A verdict on scale 1.0, a line of English.
std::string unit_scale_text(const ScaleSummary& summary);

}  // namespace kvcal
