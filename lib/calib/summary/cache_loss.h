#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "family/model_config.h"
#include "quant/cache_type.h"
#include "quant/calibration.h"
#include "quant/observations.h"
#include "quant/range_search.h"
#include "quant/scale.h"

namespace kvcal {

/// What a cache loses of K or V of one layer.
struct SideLoss {
  CodeErrors codes;
  /// Mean over channels, weighted by their deviations, of a channel's squared error over its
  /// squared values; 1 at most, which a lost channel has. Weighted by their squares, outliers would
  /// hide what the other channels lose; weighted alike, small values of all channels would count
  /// too much.
  double channel_error = 0;
};

struct LayerCacheLoss {
  int64_t layer = 0;
  SideLoss k, v;
};

/// Estimates the loss of caches from statistics alone. Heads of a token are drawn: each channel's
/// values from its part of the head's histogram (ChannelMixture), independently, channels in an
/// order at random that all tokens share; then they go through the cache's own arithmetic. What
/// tokens and channels have in common beyond that is unknown. CodeErrors::clipped is of the whole
/// histogram; so is to_zero, but where the scales of tokens or blocks decide. Borrows the
/// calibration.
class CacheLosses {
 public:
  CacheLosses(const Calibration& calibration, const ModelConfig& config);

  /// Layers with scales and a cache of their own, in order; empty where statistics are missing.
  /// scales: as scales_of has them for the type.
  std::vector<LayerCacheLoss> of(const CacheType& type,
                                 const std::vector<LayerKvScales>& scales) const;

 private:
  struct Side {
    const KvTensorCalibration* seen = nullptr;
    CachedHead head;                        ///< sizes and side, of each
    std::vector<std::vector<float>> drawn;  ///< of each head [kDrawn, head_dim]; empty: no values
    /// Of each head [head_dim]: the rank of a channel among them by its deviation, ascending.
    std::vector<std::vector<int64_t>> ranks = {};
  };
  struct Layer {
    int64_t layer = 0;
    Side k, v;
  };
  static Side draw(const KvTensorCalibration& seen, const CachedHead& head, uint64_t seed);
  static SideLoss loss_of(const Side& side, const CacheType& type,
                          const std::vector<Scale>& scales);

  std::vector<Layer> layers_;
};

/// Expected mean over layers of the channel errors of K and of V, which ranks caches.
double expected_loss(const std::vector<LayerCacheLoss>& layers);

/// The channels of one head, guessed from the histogram of all its values. A histogram does not say
/// which values are of one channel; so it is taken for a mixture of channels, each normally
/// distributed about 0, with deviations in steps of half an octave. The shares of the deviations
/// are those of the largest likelihood (expectation maximization, a fixed number of steps). A
/// channel's values are drawn from the part of the histogram that is its deviation's, so all
/// channels together have the histogram.
class ChannelMixture {
 public:
  /// largest: the largest magnitude, in the highest bin with a count. channels: of the head.
  ChannelMixture(const MagnitudeHistogram& histogram, float largest, int64_t channels);
  /// A value of a channel [0, channels), with a sign at random. Channels are in order of their
  /// deviations. Draws the same on every machine but for the last bits of the shares.
  float draw(int64_t channel, std::mt19937_64& random) const;

 private:
  void fit(const std::vector<double>& counts);

  float largest_;
  std::vector<int> bins_;                  ///< those with a count, ascending
  std::vector<double> deviations_;         ///< ascending
  std::vector<double> shares_;             ///< of each deviation
  std::vector<double> likelihoods_;        ///< [deviations, bins]
  std::vector<std::vector<double>> ends_;  ///< of each deviation: its values up to a bin's end
  std::vector<size_t> deviation_of_;       ///< of each channel
};

}  // namespace kvcal
