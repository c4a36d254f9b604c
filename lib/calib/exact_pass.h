#pragma once

#include <optional>
#include <span>
#include <vector>

#include "calib/statistics.h"
#include "family/model_config.h"
#include "forward/layer_forward.h"
#include "quant/statistics.h"

namespace kvcal {

/// Which layers a calibration runs, and how one runs whose K and V go on as they are. Borrows.
class ExactPass {
 public:
  /// Asks forward for what request names.
  ExactPass(LayerForward& forward, const ModelConfig& config, const ObservationRequest& request);

  int64_t last_layer() const;
  /// Whether nothing behind this layer's K and V is needed.
  bool is_end(int64_t layer) const;
  /// To its end, or as far as something is needed. Of a layer without attention, k and v are empty.
  LayerObservation run(int64_t layer);

 private:
  LayerForward& forward_;
  const ModelConfig& config_;
  bool finishes_layers_;
};

/// The observations of the exact forward on samples that come in rounds: the same as of all at
/// once, whose memory and time it need not take to be asked in between. Borrows.
class ExactRounds {
 public:
  ExactRounds(const ModelConfig& config, const ObservationRequest& request)
      : config_(config), request_(request) {}

  /// Runs the samples of forward, so many, which come behind those of the rounds before.
  void add(LayerForward& forward, size_t num_samples);
  /// The statistics of all rounds; samples: theirs, for messages. Throws Error for NaN or Inf as
  /// calibrate does.
  Statistics statistics(std::span<const Sample> samples) const;

 private:
  const ModelConfig& config_;
  ObservationRequest request_;
  std::vector<LayerObservation> layers_;   ///< those that ran
  std::optional<LinearObservation> head_;  ///< lm_head's input, where asked for
  size_t num_samples_ = 0;
};

}  // namespace kvcal
