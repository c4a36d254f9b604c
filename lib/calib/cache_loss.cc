#include "calib/cache_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>

namespace kvcal {
namespace {

constexpr int kDrawn = 128;  ///< vectors of each head

/// Values of one head, as its histogram has them.
class HeadValues {
 public:
  HeadValues(const MagnitudeHistogram& histogram, float largest)
      : histogram_(histogram), largest_(largest) {
    uint64_t sum = 0;
    for (const uint64_t count : histogram.counts) ends_.push_back(sum += count);
  }

  float draw(std::mt19937_64& random) const {
    const uint64_t index = random() % ends_.back();
    const auto bin = static_cast<int>(std::ranges::upper_bound(ends_, index) - ends_.begin());
    if (bin == 0) return 0.0f;
    const float low = MagnitudeHistogram::lower_edge(bin);
    const float high = std::min(MagnitudeHistogram::lower_edge(bin + 1), std::max(low, largest_));
    const uint64_t bits = random();
    const auto place = static_cast<float>(bits >> 40) * 0x1p-24f;
    const float magnitude = low + (high - low) * place;
    return (bits & 1u) != 0 ? -magnitude : magnitude;
  }

  double count() const { return static_cast<double>(ends_.back()); }
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
  std::vector<uint64_t> ends_;  ///< of each bin: values up to its end
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

CodeErrors errors_of_head(const HeadValues& head, int64_t head_dim, const CacheType& type,
                          float scale, std::mt19937_64& random) {
  CodeErrors drawn;
  std::vector<float> x(static_cast<size_t>(head_dim)), read;
  for (int i = 0; i < kDrawn; ++i) {
    for (float& value : x) value = head.draw(random);
    read = x;
    read_back(type, read, scale);
    for (size_t d = 0; d < x.size(); ++d) {
      const double error = double{read[d]} - double{x[d]};
      drawn.squared_error += error * error;
      drawn.squared += double{x[d]} * double{x[d]};
      if (x[d] != 0.0f && read[d] == 0.0f) drawn.to_zero += 1;
    }
  }
  const std::optional<double> lost = largest_lost(type, scale);
  // Heads count by their values, not by how many were drawn.
  const double weight = head.count() / (kDrawn * static_cast<double>(head_dim));
  return {.values = head.count(),
          .clipped = head.over(largest_held(type, scale)),
          .to_zero = lost ? head.up_to(*lost) : drawn.to_zero * weight,
          .squared_error = drawn.squared_error * weight,
          .squared = drawn.squared * weight};
}

CodeErrors errors_of_side(const KvTensorCalibration& side, int64_t head_dim, const CacheType& type,
                          const std::vector<Scale>& scales, std::mt19937_64& random) {
  CodeErrors errors;
  const KvStatistics& seen = side.statistics;
  for (size_t h = 0; h < seen.head_histograms.size(); ++h) {
    const float scale = scales.empty() ? 1.0f : scales[scales.size() == 1 ? 0 : h].value;
    const HeadValues head(seen.head_histograms[h], seen.head_ranges[h].amax().value);
    if (head.count() > 0) errors.add(errors_of_head(head, head_dim, type, scale, random));
  }
  return errors;
}

double squared(double x) {
  return x * x;
}

}  // namespace

std::vector<LayerCacheLoss> cache_losses(const Calibration& calibration, const ModelConfig& config,
                                         const CacheType& type,
                                         const std::vector<LayerKvScales>& scales) {
  const std::vector<int64_t> cached = config.cached_layers();
  const std::set<int64_t> own(cached.begin(), cached.end());
  std::vector<LayerCacheLoss> losses;
  for (const AttentionCalibration& one : calibration.layers) {
    const auto layer = static_cast<size_t>(one.layer);
    if (one.ignored || !own.contains(one.layer)) continue;
    if (layer >= scales.size() || scales[layer].ignored) continue;
    if (one.k.statistics.head_histograms.empty()) continue;
    const LayerCache& heads = config.cache(one.layer);
    std::mt19937_64 random(static_cast<uint64_t>(one.layer));  // the same vectors for all caches
    LayerCacheLoss loss{.layer = one.layer, .k = {}, .v = {}};
    loss.k = errors_of_side(one.k, heads.k_dim, type, scales[layer].k, random);
    loss.v = errors_of_side(one.v, heads.v_dim, type, scales[layer].v, random);
    losses.push_back(loss);
  }
  return losses;
}

double expected_loss(const std::vector<LayerCacheLoss>& layers) {
  double sum = 0;
  for (const LayerCacheLoss& layer : layers)
    sum += squared(layer.k.relative_error()) + squared(layer.v.relative_error());
  return layers.empty() ? 0.0 : sum / static_cast<double>(layers.size());
}

}  // namespace kvcal
