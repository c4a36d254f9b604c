#include "calib/cache_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "calib/channel_mixture.h"
#include "core/shuffle.h"

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
  // NVFP4 has a scale of each block, up to 448, times E2M1's 6.
  const double largest = *type.format == CacheFormat::kNvfp4 ? 448.0 * 6.0 : 127.5;
  return double{scale} * largest;
}

/// Largest magnitude whose code with the scale is 0: half of the least code, a tie that goes to 0.
/// nullopt where the scales of tokens or blocks decide.
std::optional<double> largest_lost(const CacheType& type, float scale) {
  if (!type.format) return double{scale} * double{fp8::decode(1, fp8_format(type.dtype))} / 2;
  if (*type.format == CacheFormat::kInt8) return double{scale} / 2;
  return std::nullopt;
}

void read_back(const CacheType& type, std::vector<float>& x, float scale) {
  if (type.format) return round_trip(*type.format, x.data(), std::ssize(x), scale);
  const fp8::Format format = fp8_format(type.dtype);
  for (float& value : x) value = fp8::decode(fp8::encode(value / scale, format), format) * scale;
}

/// Loss of one head's drawn vectors [kDrawn, head_dim].
SideLoss loss_of_head(const HeadValues& head, const std::vector<float>& drawn, int64_t head_dim,
                      const CacheType& type, float scale) {
  const auto dim = static_cast<size_t>(head_dim);
  std::vector<double> squares(dim, 0.0), errors(dim, 0.0);
  double to_zero = 0;
  std::vector<float> read(dim);
  for (size_t first = 0; first < drawn.size(); first += dim) {
    const float* x = &drawn[first];
    read.assign(x, x + dim);
    read_back(type, read, scale);
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
  const std::optional<double> lost = largest_lost(type, scale);
  loss.codes = {.values = head.count(),
                .clipped = head.over(largest_held(type, scale)),
                .to_zero = lost ? head.up_to(*lost) : to_zero * weight,
                .squared_error = std::reduce(errors.begin(), errors.end()) * weight,
                .squared = std::reduce(squares.begin(), squares.end()) * weight};
  return loss;
}

}  // namespace

CacheLosses::CacheLosses(const Calibration& calibration, const ModelConfig& config) {
  const std::vector<int64_t> cached = config.cached_layers();
  const std::set<int64_t> own(cached.begin(), cached.end());
  for (const AttentionCalibration& one : calibration.layers) {
    if (one.ignored || !own.contains(one.layer) || one.k.head_histograms.empty())
      continue;
    const LayerCache& heads = config.cache(one.layer);
    const auto seed = 2 * static_cast<uint64_t>(one.layer);
    layers_.push_back({.layer = one.layer,
                       .k = draw(one.k, heads.k_dim, seed),
                       .v = draw(one.v, heads.v_dim, seed + 1)});
  }
}

CacheLosses::Side CacheLosses::draw(const KvTensorCalibration& seen, int64_t head_dim, uint64_t seed) {
  Side side{.seen = &seen, .head_dim = head_dim, .drawn = {}};
  std::mt19937_64 random(seed);
  for (size_t h = 0; h < seen.head_histograms.size(); ++h) {
    std::vector<float>& drawn = side.drawn.emplace_back();
    const float largest = seen.head_ranges[h].amax().value;
    if (HeadValues(seen.head_histograms[h], largest).count() == 0 || largest == 0.0f) continue;
    const ChannelMixture mixture(seen.head_histograms[h], largest, head_dim);
    std::vector<int64_t> order(static_cast<size_t>(head_dim));
    std::iota(order.begin(), order.end(), int64_t{0});
    shuffle(order, random);
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
    const float scale = scales.empty() ? 1.0f : scales[scales.size() == 1 ? 0 : h].value;
    const HeadValues head(side.seen->head_histograms[h], side.seen->head_ranges[h].amax().value);
    const SideLoss one = loss_of_head(head, side.drawn[h], side.head_dim, type, scale);
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

}  // namespace kvcal
