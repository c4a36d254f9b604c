#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "model/linear_amax.h"
#include "quant/calibration.h"

namespace kvcal {

/// What K and V of one layer were over all samples. ranges are [samples, cache_heads].
struct KvObservation {
  std::vector<ObservedRange> ranges;
  std::vector<MagnitudeHistogram> histograms;  ///< [cache_heads]
};
/// What a pass over a layer saw. linears: inputs of the Linears the pass ran, where asked for.
struct LayerObservation {
  KvObservation k, v;
  std::vector<LinearAmax> linears = {};
};

/// How K and V are stored for attention: one scale a head, [cache_heads].
struct KvQuantization {
  KvDType dtype = KvDType::kFp8E4m3;
  std::vector<float> k_scales, v_scales;
};

/// Values that were clipped while stored, summed over heads.
struct SaturationCounts {
  uint64_t k = 0, v = 0;
};
struct LayerAdvance {
  SaturationCounts saturated = {};
  std::vector<LinearAmax> linears = {};
};

/// A forward pass of many samples with the layer as the outer loop. Call for each layer in order:
/// observe, then one of the advances.
class LayerForward {
 public:
  virtual ~LayerForward() = default;

  /// K after RoPE and V of every sample, unquantized.
  virtual LayerObservation observe(int64_t layer) = 0;
  /// What quantization clips of this layer's K and V; only before the layer is advanced.
  virtual SaturationCounts count_saturated(int64_t layer, const KvQuantization& quantization) = 0;
  /// The rest of the layer, whose attention reads K and V as quantization stores them.
  virtual LayerAdvance advance(int64_t layer, const KvQuantization& quantization) = 0;
  /// The rest of the layer, whose attention reads K and V unquantized.
  virtual LayerAdvance advance_exact(int64_t layer) = 0;
  /// A layer whose tokens are mixed without K and V.
  virtual LayerAdvance advance_without_attention(int64_t layer) = 0;
  /// observe and advance_exact in one pass.
  virtual LayerObservation observe_and_advance_exact(int64_t layer) = 0;

  virtual int64_t num_tokens() const = 0;
  /// Whether passes from now on give the extremes of Linears' inputs.
  virtual void observe_linear_amax(bool wanted) = 0;
};

}  // namespace kvcal
