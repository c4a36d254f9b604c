#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "forward/hidden_exchange.h"
#include "forward/linear_observation.h"
#include "forward/observation_request.h"
#include "quant/calibration.h"

namespace kvcal {

/// Ranges and magnitudes of the heads of K, V or Q of one layer. ranges are [samples, heads].
struct KvObservation {
  std::vector<ObservedRange> ranges;
  std::vector<MagnitudeHistogram> histograms;  ///< [heads]
};
/// Observations of one pass over a layer.
struct LayerObservation {
  KvObservation k, v;                           ///< of cache_heads
  std::optional<KvObservation> q = {};          ///< of num_attention_heads, where asked for
  std::vector<LinearObservation> linears = {};  ///< where asked for and the pass ends the layer
};

/// How K and V are stored for attention: one scale a head, [cache_heads].
struct KvQuantization {
  KvDType dtype = KvDType::kFp8E4m3;
  std::vector<float> k_scales, v_scales;
  /// [num_attention_heads] of queries in FP8 of the same dtype; empty: attention reads them as they
  /// are.
  std::vector<float> q_scales = {};
};

/// Values that were clipped while stored, summed over heads.
struct SaturationCounts {
  uint64_t k = 0, v = 0;
  uint64_t q = 0;  ///< of queries that attention read in FP8
};
struct LayerAdvance {
  SaturationCounts saturated = {};
  std::vector<LinearObservation> linears = {};  ///< where asked for
};

/// A forward pass of many samples with the layer as the outer loop. Call for each layer in order:
/// observe, then one of the advances.
class LayerForward {
 public:
  virtual ~LayerForward() = default;

  /// Chooses what the passes observe beside K and V; before the first one. Default: nothing.
  virtual void request(const ObservationRequest& request) = 0;

  /// K after RoPE and V of every sample, unquantized, and Q after RoPE.
  virtual LayerObservation observe(int64_t layer) = 0;
  /// Counts the clipped values of this layer's K and V, not Q; only before the layer is advanced.
  virtual SaturationCounts count_saturated(int64_t layer, const KvQuantization& quantization) = 0;
  /// The rest of the layer, whose attention reads K, V and Q as quantization stores them.
  virtual LayerAdvance advance(int64_t layer, const KvQuantization& quantization) = 0;
  /// The rest of the layer, whose attention reads K and V unquantized.
  virtual LayerAdvance advance_exact(int64_t layer) = 0;
  /// A layer whose tokens are mixed without K and V.
  virtual LayerAdvance advance_without_attention(int64_t layer) = 0;
  /// observe and advance_exact in one pass.
  virtual LayerObservation observe_and_advance_exact(int64_t layer) = 0;
  /// The input of lm_head; once the last layer of the model has advanced.
  virtual LinearObservation observe_head() = 0;

  virtual int64_t num_tokens() const = 0;

  /// The passes that end a layer show sink, borrowed, what they leave, from now on; null: no
  /// longer.
  virtual void show_hidden(HiddenSink* sink) = 0;
  /// In place of the layers before next_layer, which is the first that runs: their hidden states.
  /// Before the first pass.
  virtual void restore_hidden(int64_t next_layer, const HiddenSource& source) = 0;
};

}  // namespace kvcal
