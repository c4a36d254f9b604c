#include "calib/summary/cache_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <utility>

#include "core/shuffle.h"
#include "forward/engine_cache.h"

namespace kvcal {
namespace {

constexpr int kDrawn = 128;  ///< vectors of each head

double squared(double x) {
  return x * x;
}

/// Values of one head, as its histogram has them.
class HeadValues {
 public:
  HeadValues(const MagnitudeHistogram& histogram, float largest)
      : histogram_(histogram),
        largest_(largest),
        count_(static_cast<double>(
            std::accumulate(histogram.counts.begin(), histogram.counts.end(), uint64_t{0}))) {}

  double count() const { return count_; }
  /// Values from 2^-24 up to a magnitude, spread evenly over their bin.
  double up_to(double limit) const {
    double sum = 0;
    for (int bin = 1; bin < MagnitudeHistogram::kBins; ++bin) {
      const auto count = static_cast<double>(histogram_.counts[static_cast<size_t>(bin)]);
      const double low = MagnitudeHistogram::lower_edge(bin);
      const double high = std::min<double>(MagnitudeHistogram::lower_edge(bin + 1), largest_);
      if (count == 0 || low >= limit) continue;
      sum += high <= limit ? count : count * (limit - low) / (high - low);
    }
    return sum;
  }
  /// Values over a magnitude. A scale that was rounded down to float32 clips nothing of the amax
  /// that made it.
  double over(double limit) const {
    if (largest_ <= limit * (1 + 1e-6)) return 0;
    return count() - static_cast<double>(histogram_.counts[0]) - up_to(limit);
  }

 private:
  const MagnitudeHistogram& histogram_;
  float largest_;
  double count_;
};

/// Largest magnitude that codes with the scale stand for; infinite where tokens make their own.
double largest_held(const CacheType& type, float scale) {
  if (!type.format) return double{scale} * double{fp8::max_value(fp8_format(type.dtype))};
  if (!needs_scales(type)) return std::numeric_limits<double>::infinity();
  return double{scale} * double{layout_of(*type.format).holds};
}

/// Largest magnitude whose code with the scale is 0: half of the least code, a tie that goes to 0.
/// nullopt where the scales of tokens or blocks decide.
std::optional<double> largest_lost(const CacheType& type, float scale) {
  if (!type.format) return double{scale} * double{fp8::decode(1, fp8_format(type.dtype))} / 2;
  if (*type.format == CacheFormat::kInt8) return double{scale} / 2;
  return std::nullopt;
}

void read_back(const CacheType& type, const CachedHead& head) {
  if (type.format) return round_trip(*type.format, head);
  const fp8::Format format = fp8_format(type.dtype);
  for (float& value : std::span(head.x, static_cast<size_t>(head.size)))
    value = fp8::decode(fp8::encode(value / head.scale, format), format) * head.scale;
}

/// Loss of one head's drawn vectors [kDrawn, head_dim].
SideLoss loss_of_head(const HeadValues& head, const std::vector<float>& drawn, CachedHead place,
                      const CacheType& type) {
  const auto dim = static_cast<size_t>(place.size);
  std::vector<double> squares(dim, 0.0), errors(dim, 0.0);
  double to_zero = 0;
  std::vector<float> read(dim);
  place.x = read.data();
  for (size_t first = 0; first < drawn.size(); first += dim) {
    const float* x = &drawn[first];
    std::copy(x, x + dim, read.begin());
    read_back(type, place);
    for (size_t d = 0; d < dim; ++d) {
      errors[d] += squared(double{read[d]} - double{x[d]});
      squares[d] += squared(x[d]);
      if (x[d] != 0.0f && read[d] == 0.0f) to_zero += 1;
    }
  }
  SideLoss loss;
  double weights = 0;
  for (size_t d = 0; d < dim; ++d) {
    if (squares[d] == 0) continue;
    const double weight = std::sqrt(squares[d]);
    loss.channel_error += weight * std::min(errors[d] / squares[d], 1.0);
    weights += weight;
  }
  if (weights > 0) loss.channel_error /= weights;
  // Heads count by their values, not by how many were drawn.
  const double weight = head.count() / static_cast<double>(drawn.size());
  const std::optional<double> lost = largest_lost(type, place.scale);
  loss.codes = {.values = head.count(),
                .clipped = head.over(largest_held(type, place.scale)),
                .to_zero = lost ? head.up_to(*lost) : to_zero * weight,
                .squared_error = std::reduce(errors.begin(), errors.end()) * weight,
                .squared = std::reduce(squares.begin(), squares.end()) * weight};
  return loss;
}

/// Scales of one of the heads: one, or those of its channels, of which the largest are for the
/// drawn channels that deviate most.
std::vector<float> scales_of_head(const std::vector<Scale>& scales, size_t head,
                                  const std::vector<std::vector<int64_t>>& ranks) {
  if (scales.size() <= 1) return {scales.empty() ? 1.0f : scales.front().value};
  const size_t width = scales.size() / ranks.size();
  std::vector<float> own;
  for (size_t i = head * width; i < (head + 1) * width; ++i) own.push_back(scales[i].value);
  if (width == 1) return own;
  std::ranges::sort(own);
  std::vector<float> drawn;
  for (const int64_t rank : ranks[head]) drawn.push_back(own[static_cast<size_t>(rank)]);
  return drawn;
}

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

CacheLosses::CacheLosses(const Calibration& calibration, const ModelConfig& config) {
  const std::vector<int64_t> cached = config.cached_layers();
  const std::set<int64_t> own(cached.begin(), cached.end());
  for (const AttentionCalibration& one : calibration.layers) {
    if (one.ignored || !own.contains(one.layer) || one.k.head_histograms.empty()) continue;
    const CachedSizes sizes = cached_sizes(config, one.layer);
    const auto seed = 2 * static_cast<uint64_t>(one.layer);
    layers_.push_back({.layer = one.layer,
                       .k = draw(one.k, {.size = sizes.k, .rotated = sizes.rotated}, seed),
                       .v = draw(one.v, {.size = sizes.v, .is_value = true}, seed + 1)});
  }
}

CacheLosses::Side CacheLosses::draw(const KvTensorCalibration& seen, const CachedHead& head,
                                    uint64_t seed) {
  const int64_t head_dim = head.size;
  Side side{.seen = &seen,
            .head = head,
            .drawn = {},
            .ranks = std::vector<std::vector<int64_t>>(seen.head_histograms.size())};
  std::mt19937_64 random(seed);
  if (head_dim == 0) return side;
  for (size_t h = 0; h < seen.head_histograms.size(); ++h) {
    std::vector<float>& drawn = side.drawn.emplace_back();
    const float largest = seen.head_ranges[h].amax().value;
    if (HeadValues(seen.head_histograms[h], largest).count() == 0 || largest == 0.0f) continue;
    const ChannelMixture mixture(seen.head_histograms[h], largest, head_dim);
    std::vector<int64_t> order(static_cast<size_t>(head_dim));
    std::iota(order.begin(), order.end(), int64_t{0});
    shuffle(order, random);
    side.ranks[h] = order;
    for (int i = 0; i < kDrawn; ++i)
      for (const int64_t channel : order) drawn.push_back(mixture.draw(channel, random));
  }
  return side;
}

SideLoss CacheLosses::loss_of(const Side& side, const CacheType& type,
                              const std::vector<Scale>& scales) {
  SideLoss loss;
  for (size_t h = 0; h < side.drawn.size(); ++h) {
    if (side.drawn[h].empty()) continue;
    CachedHead place = side.head;
    const std::vector<float> own = scales_of_head(scales, h, side.ranks);
    place.scale = *std::ranges::max_element(own);
    if (own.size() > 1) place.scales = own.data();
    const HeadValues head(side.seen->head_histograms[h], side.seen->head_ranges[h].amax().value);
    const SideLoss one = loss_of_head(head, side.drawn[h], place, type);
    loss.codes.add(one.codes);
    loss.channel_error += one.channel_error / static_cast<double>(side.drawn.size());
  }
  return loss;
}

std::vector<LayerCacheLoss> CacheLosses::of(const CacheType& type,
                                            const std::vector<LayerKvScales>& scales) const {
  std::vector<LayerCacheLoss> losses;
  for (const Layer& one : layers_) {
    const auto layer = static_cast<size_t>(one.layer);
    if (layer >= scales.size() || scales[layer].ignored) continue;
    losses.push_back({.layer = one.layer,
                      .k = loss_of(one.k, type, scales[layer].k),
                      .v = loss_of(one.v, type, scales[layer].v)});
  }
  return losses;
}

double expected_loss(const std::vector<LayerCacheLoss>& layers) {
  double sum = 0;
  for (const LayerCacheLoss& layer : layers) sum += layer.k.channel_error + layer.v.channel_error;
  return layers.empty() ? 0.0 : sum / static_cast<double>(layers.size());
}

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
