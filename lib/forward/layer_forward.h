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
  std::optional<KvObservation> q = {};          ///< of num_attention_heads, where requested
  std::vector<LinearObservation> linears = {};  ///< where requested, in a pass that ends the layer
};

/// Storage of K and V for attention: one scale a head, [cache_heads].
struct KvQuantization {
  KvDType dtype = KvDType::kFp8E4m3;
  std::vector<float> k_scales, v_scales;
  /// [num_attention_heads] of queries in FP8 of the same dtype; empty: queries stay unquantized.
  std::vector<float> q_scales = {};
};

/// Counts of values that were clipped when stored, summed over heads.
struct SaturationCounts {
  uint64_t k = 0, v = 0;
  uint64_t q = 0;  ///< of queries that attention read in FP8
};
struct LayerAdvance {
  SaturationCounts saturated = {};
  std::vector<LinearObservation> linears = {};  ///< where requested
};

/// Forward pass of many samples with the layer as the outer loop. For each layer in order, call
/// observe and then one advance.
class LayerForward {
 public:
  virtual ~LayerForward() = default;

  /// Chooses the tensors to observe beside K and V. Call before the first pass. Default: none.
  virtual void request(const ObservationRequest& request) = 0;

  /// Observes K after RoPE and V of every sample, unquantized, and Q after RoPE.
  virtual LayerObservation observe(int64_t layer) = 0;
  /// Counts the clipped values of K and V, not Q. Call before the layer is advanced.
  virtual SaturationCounts count_saturated(int64_t layer, const KvQuantization& quantization) = 0;
  /// Runs the rest of the layer; attention reads K, V and Q as quantization stores them.
  virtual LayerAdvance advance(int64_t layer, const KvQuantization& quantization) = 0;
  /// Runs the rest of the layer; attention reads unquantized K and V.
  virtual LayerAdvance advance_exact(int64_t layer) = 0;
  /// Runs a layer without attention.
  virtual LayerAdvance advance_without_attention(int64_t layer) = 0;
  /// observe and advance_exact in one pass.
  virtual LayerObservation observe_and_advance_exact(int64_t layer) = 0;
  /// Observes the input of lm_head. Call after the last layer of the model has advanced.
  virtual LinearObservation observe_head() = 0;

  virtual int64_t num_tokens() const = 0;

  /// From now on, passes that end a layer give their hidden states to sink, which is borrowed;
  /// null: to nobody.
  virtual void show_hidden(HiddenSink* sink) = 0;
  /// Reads hidden states from source instead of running the layers before next_layer, the first
  /// that runs. Call before the first pass.
  virtual void restore_hidden(int64_t next_layer, const HiddenSource& source) = 0;
};

}  // namespace kvcal
