#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "quant/magnitude_histogram.h"

namespace kvcal {

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
