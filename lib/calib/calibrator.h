#pragma once

#include <span>

#include "calib/derive.h"
#include "core/diagnostics.h"
#include "datasets/dataset.h"
#include "family/model_config.h"
#include "forward/layer_forward.h"
#include "quant/calibration.h"
#include "quant/statistics.h"

namespace kvcal {

/// The form in which later layers see K and V while they are calibrated.
enum class KvForward {
  kQuantized,  ///< quantized with the layer's final scale, as they will be when served
  kExact,      ///< unquantized, as in llm-compressor and ModelOpt
};

struct CalibrationOptions {
  KvForward kv_forward = KvForward::kQuantized;
  DeriveOptions derive = {};
  /// Queries and all inputs of Linears are observed too, whether the plan needs them or not.
  bool observes_all = false;
};

/// The observation that calibrate needs of the forward pass; LayerwiseOptions::observation must be
/// the same.
ObservationRequest observation_of(const QuantPlan& plan, const CalibrationOptions& options);

/// Whether the exact forward's statistics give all of a calibration by the plan: nothing is
/// quantized before later layers run, and nothing clips that would have to be counted.
bool needs_one_pass(const QuantPlan& plan, const CalibrationOptions& options);

/// Runs the samples through forward layer by layer and makes the scales the plan asks for. samples
/// are those forward was made of, for messages. kept: where statistics go (not their origin), if
/// they are kept. Throws Error naming layer, head or module, record and token for NaN or Inf.
Calibration calibrate(LayerForward& forward, const ModelConfig& config, const QuantPlan& plan,
                      std::span<const Sample> samples, const CalibrationOptions& options,
                      Statistics* kept, Diagnostics& diagnostics);

}  // namespace kvcal
