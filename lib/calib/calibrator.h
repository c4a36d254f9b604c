#pragma once

#include <optional>
#include <span>

#include "calib/scales/derive.h"
#include "core/diagnostics.h"
#include "datasets/dataset.h"
#include "family/model_config.h"
#include "forward/layer_forward.h"
#include "quant/calibration.h"
#include "quant/statistics.h"

namespace kvcal {

/// K and V that later layers read during calibration.
enum class KvForward {
  kQuantized,  ///< quantized with the layer's final scale, as an engine serves them
  /// unquantized, as in llm-compressor and ModelOpt: float32, or bfloat16 where that is the compute
  /// type
  kExact,
};

struct CalibrationOptions {
  KvForward kv_forward = KvForward::kQuantized;
  DeriveOptions derive = {};
  /// Observes queries and all inputs of Linears, also those that the plan does not need.
  bool observes_all = false;
  /// Samples, from the first on, in which attention over quantized K and V is compared with
  /// attention over unquantized ones (quant/damage_verdict.h); 0: none.
  int64_t compared_samples = 0;
};

/// Observation that calibrate needs from the forward pass; LayerwiseOptions::observation must equal
/// it.
ObservationRequest observation_of(const QuantPlan& plan, const CalibrationOptions& options);

/// Whether one exact forward pass gives everything that a calibration by the plan needs: no layer
/// reads quantized K and V, and no clipped values need counting.
bool needs_one_pass(const QuantPlan& plan, const CalibrationOptions& options);

/// Runs the samples through forward layer by layer and makes the plan's scales. samples: those of
/// forward, for messages. kept: receives the statistics (without their origin), or null. Throws
/// Error naming layer, head or module, record and token for NaN or Inf.
Calibration calibrate(LayerForward& forward, const ModelConfig& config, const QuantPlan& plan,
                      std::span<const Sample> samples, const CalibrationOptions& options,
                      Statistics* kept, Diagnostics& diagnostics);

/// Compares a layer's attention with its scales, and with scale 1.0, once its last pass has run.
AttentionDamage damage_of(LayerForward& forward, const ModelConfig& config,
                          const AttentionCalibration& layer, const KvFormat& format);

/// That, for the statistics; nullopt where attention was not compared.
std::optional<ComparedScales> compared_scales(const AttentionCalibration& layer);

}  // namespace kvcal
