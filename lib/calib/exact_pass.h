#pragma once

#include <optional>
#include <span>
#include <vector>

#include "calib/observed_statistics.h"
#include "family/model_config.h"
#include "forward/layer_forward.h"
#include "quant/statistics.h"

namespace kvcal {

/// Exact forward pass of a calibration, layer by layer, as far as observations are needed. Borrows.
class ExactPass {
 public:
  /// Requests the observations from forward.
  ExactPass(LayerForward& forward, const ModelConfig& config, const ObservationRequest& request);

  int64_t last_layer() const;
  /// Whether nothing after this layer's K and V is needed.
  bool is_end(int64_t layer) const;
  /// Runs the layer, to its end or as far as needed. k and v are empty for a layer without
  /// attention.
  LayerObservation run(int64_t layer);

 private:
  LayerForward& forward_;
  const ModelConfig& config_;
  ObservationRequest request_;
};

/// Observations of the exact forward pass over samples that come in rounds: equal to those of one
/// pass over all samples, without its memory, and available after each round. Borrows.
class ExactRounds {
 public:
  ExactRounds(const ModelConfig& config, const ObservationRequest& request)
      : config_(config), request_(request) {}

  /// Runs the num_samples samples of forward, which follow those of earlier rounds.
  void add(LayerForward& forward, size_t num_samples);
  /// Statistics of all rounds; samples: those of all rounds, for messages. Throws Error for NaN or
  /// Inf as calibrate does.
  Statistics statistics(std::span<const Sample> samples) const;

 private:
  const ModelConfig& config_;
  ObservationRequest request_;
  std::vector<LayerObservation> layers_;   ///< layers that ran
  std::optional<LinearObservation> head_;  ///< lm_head's input, where requested
  size_t num_samples_ = 0;
};

}  // namespace kvcal
