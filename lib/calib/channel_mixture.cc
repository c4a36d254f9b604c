#include "calib/channel_mixture.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace kvcal {
namespace {

constexpr int kSteps = 100;
constexpr int kSmallest = -40;  ///< deviation against the largest magnitude, in half octaves

/// Share of a normal distribution's magnitudes in a bin.
double share_of_bin(int bin, double deviation) {
  const auto up_to = [&](int edge) {
    return std::erf(MagnitudeHistogram::lower_edge(edge) / (deviation * std::numbers::sqrt2));
  };
  return up_to(bin + 1) - up_to(bin);
}

}  // namespace

ChannelMixture::ChannelMixture(const MagnitudeHistogram& histogram, float largest, int64_t channels)
    : largest_(largest) {
  std::vector<double> counts;
  for (int bin = 0; bin < MagnitudeHistogram::kBins; ++bin)
    if (const uint64_t count = histogram.counts[static_cast<size_t>(bin)]; count > 0) {
      bins_.push_back(bin);
      counts.push_back(static_cast<double>(count));
    }
  for (int step = kSmallest; step <= 0; ++step) {
    deviations_.push_back(double{largest} * std::exp2(step / 2.0));
    for (const int bin : bins_)
      likelihoods_.push_back(std::max(share_of_bin(bin, deviations_.back()), 1e-300));
  }
  fit(counts);
  double reached = 0;
  for (size_t d = 0; d < deviations_.size(); ++d) {
    reached += shares_[d];
    while (std::ssize(deviation_of_) < channels &&
           (static_cast<double>(deviation_of_.size()) + 0.5) / static_cast<double>(channels) <
               reached)
      deviation_of_.push_back(d);
  }
  deviation_of_.resize(static_cast<size_t>(channels), deviations_.size() - 1);
}

void ChannelMixture::fit(const std::vector<double>& counts) {
  const size_t num_bins = bins_.size(), num = deviations_.size();
  double all = 0;
  for (const double count : counts) all += count;
  shares_.assign(num, 1.0 / static_cast<double>(num));
  for (int step = 0; step < kSteps; ++step) {
    std::vector<double> likelihood(num_bins, 0.0), next(num, 0.0);
    for (size_t d = 0; d < num; ++d)
      for (size_t b = 0; b < num_bins; ++b)
        likelihood[b] += shares_[d] * likelihoods_[d * num_bins + b];
    for (size_t d = 0; d < num; ++d)
      for (size_t b = 0; b < num_bins; ++b)
        next[d] += counts[b] * shares_[d] * likelihoods_[d * num_bins + b] / likelihood[b];
    for (size_t d = 0; d < num; ++d) shares_[d] = next[d] / all;
  }
  std::vector<double> likelihood(num_bins, 0.0);
  for (size_t d = 0; d < num; ++d)
    for (size_t b = 0; b < num_bins; ++b)
      likelihood[b] += shares_[d] * likelihoods_[d * num_bins + b];
  for (size_t d = 0; d < num; ++d) {
    double reached = 0;
    std::vector<double>& ends = ends_.emplace_back();
    for (size_t b = 0; b < num_bins; ++b)
      ends.push_back(reached += counts[b] * likelihoods_[d * num_bins + b] / likelihood[b]);
  }
}

float ChannelMixture::draw(int64_t channel, std::mt19937_64& random) const {
  const std::vector<double>& ends = ends_[deviation_of_[static_cast<size_t>(channel)]];
  const double place = static_cast<double>(random() >> 11) * 0x1p-53 * ends.back();
  const auto index =
      std::min(std::ranges::upper_bound(ends, place) - ends.begin(), std::ssize(ends) - 1);
  const int bin = bins_[static_cast<size_t>(index)];
  if (bin == 0) return 0.0f;
  const float low = MagnitudeHistogram::lower_edge(bin);
  const float high = std::min(MagnitudeHistogram::lower_edge(bin + 1), std::max(low, largest_));
  const uint64_t bits = random();
  const float magnitude = low + (high - low) * (static_cast<float>(bits >> 40) * 0x1p-24f);
  return (bits & 1u) != 0 ? -magnitude : magnitude;
}

}  // namespace kvcal
