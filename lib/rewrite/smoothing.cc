#include "rewrite/smoothing.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kvcal {
namespace {

constexpr int kMostDoublings = 20;

/// The largest power of two that keeps amax at or below most, so a smoothed model has nothing left
/// to smooth.
float factor_to(float most, float amax) {
  if (amax <= 0.0f) return 1.0f;
  const int doublings = std::ilogb(double{most} / double{amax});
  return std::ldexp(1.0f, std::clamp(doublings, 0, kMostDoublings));
}

/// The upper median of at least one value, whose order changes.
template <class Number>
Number median_of(std::vector<Number>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// Divides factors by their median over the channels that have values, so that an outlier shrinks
/// to the others, and not all grow to it: K and V stay inside the range of a cache with scale 1.0.
void center(std::span<float> factors, std::span<const float> reach) {
  std::vector<int> doublings;
  for (size_t i = 0; i < factors.size(); ++i)
    if (reach[i] > 0.0f) doublings.push_back(std::ilogb(factors[i]));
  if (doublings.empty()) return;
  const int middle = median_of(doublings);
  for (float& factor : factors) factor = std::ldexp(factor, -middle);
}

/// Factors [heads, width] of one layer's side, where units share a factor.
std::vector<float> even_factors(const std::vector<float>& amax, int64_t heads,
                                const KeyUnits& units, bool is_shared) {
  const auto width = amax.size() / static_cast<size_t>(heads);
  std::vector<float> factors(amax.size(), 1.0f);
  const float most = std::ranges::max(amax);
  // Heads that share a weight are smoothed as one, whose channels reach as far as any head's.
  const size_t rows = is_shared ? 1 : static_cast<size_t>(heads);
  for (size_t row = 0; row < rows; ++row) {
    std::vector<float> reach(amax.begin() + static_cast<std::ptrdiff_t>(row * width),
                             amax.begin() + static_cast<std::ptrdiff_t>((row + 1) * width));
    if (is_shared)
      for (size_t i = width; i < amax.size(); ++i)
        reach[i % width] = std::max(reach[i % width], amax[i]);
    for (const std::vector<int64_t>& unit : units) {
      float own = 0.0f;
      for (const int64_t channel : unit) own = std::max(own, reach[static_cast<size_t>(channel)]);
      for (const int64_t channel : unit)
        factors[row * width + static_cast<size_t>(channel)] = factor_to(most, own);
    }
  }
  for (size_t i = rows * width; i < factors.size(); ++i) factors[i] = factors[i % width];
  center(factors, amax);
  return factors;
}

/// A tensor without factors is copied.
void drop_if_none(std::vector<float>& factors) {
  if (std::ranges::all_of(factors, [](float factor) { return factor == 1.0f; })) factors.clear();
}

/// Collects what each head's channels reach before and after.
class HeadRatios {
 public:
  void add(const std::vector<float>& amax, const std::vector<float>& factors, int64_t heads) {
    const auto width = amax.size() / static_cast<size_t>(heads);
    for (size_t begin = 0; begin < amax.size(); begin += width) {
      std::vector<double> old(width), smooth(width);
      for (size_t i = 0; i < width; ++i) {
        old[i] = double{amax[begin + i]};
        smooth[i] = double{amax[begin + i]} * double{factors[begin + i]};
      }
      add_ratio(old, before_);
      add_ratio(smooth, after_);
    }
  }
  Unevenness median() {
    if (before_.empty()) return {};
    return {.before = median_of(before_), .after = median_of(after_)};
  }

 private:
  static void add_ratio(const std::vector<double>& reach, std::vector<double>& ratios) {
    const double sum = std::accumulate(reach.begin(), reach.end(), 0.0);
    if (sum > 0.0)
      ratios.push_back(std::ranges::max(reach) * static_cast<double>(reach.size()) / sum);
  }

  std::vector<double> before_, after_;
};

KeyUnits single_channels(int64_t width) {
  KeyUnits units;
  for (int64_t channel = 0; channel < width; ++channel) units.push_back({channel});
  return units;
}

}  // namespace

void check_can_be_smoothed(const ModelConfig& config) {
  const auto k_reason = reason_against_key_factors(config);
  const auto v_reason = reason_against_value_factors(config);
  if (!k_reason || !v_reason) return;
  fail("nothing to smooth: ", *k_reason, *k_reason == *v_reason ? "" : "; " + *v_reason);
}

Smoothing smoothing_of(const ModelConfig& config, std::span<const ChannelAmax> amax) {
  check_can_be_smoothed(config);
  const auto k_reason = reason_against_key_factors(config);
  const auto v_reason = reason_against_value_factors(config);
  Smoothing smoothing{.factors = KvFactors(static_cast<size_t>(config.num_hidden_layers)),
                      .k_reason = k_reason.value_or(""),
                      .v_reason = v_reason.value_or("")};
  HeadRatios k, v;
  for (const int64_t layer : config.cached_layers()) {
    LayerFactors& own = smoothing.factors.at(static_cast<size_t>(layer));
    const ChannelAmax& seen = amax[static_cast<size_t>(layer)];
    const AttentionSizes& sizes = config.attention(layer);
    KVCAL_CHECK(std::ssize(seen.k) == sizes.key_width() &&
                std::ssize(seen.v) == sizes.value_width());
    if (!k_reason) {
      own.k = even_factors(seen.k, sizes.kv_heads, key_units(config, layer).all(),
                           shares_key_factors(config, layer));
      k.add(seen.k, own.k, sizes.kv_heads);
      drop_if_none(own.k);
    }
    if (!v_reason) {
      own.v = even_factors(seen.v, sizes.kv_heads, single_channels(sizes.value_dim), false);
      v.add(seen.v, own.v, sizes.kv_heads);
      drop_if_none(own.v);
    }
  }
  if (!k_reason) smoothing.k = k.median();
  if (!v_reason) smoothing.v = v.median();
  return smoothing;
}

}  // namespace kvcal
