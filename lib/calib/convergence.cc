#include "calib/convergence.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace kvcal {
namespace {

/// Probability outside the interval at each end.
constexpr double kTail = 0.025;

/// Smallest value (of ascending ones) that a draw's maximum does not exceed with the probability.
Amax quantile_of_maximum(const std::vector<Amax>& values, double probability) {
  const auto count = static_cast<double>(values.size());
  for (size_t k = 1; k < values.size(); ++k)
    if (count * std::log(static_cast<double>(k) / count) >= std::log(probability))
      return values[k - 1];
  return values.back();
}

}  // namespace

AmaxConvergence convergence_of(std::span<const Amax> samples) {
  KVCAL_CHECK(!samples.empty());
  AmaxConvergence result;
  Amax running;
  const auto all = static_cast<int64_t>(samples.size());
  for (int64_t seen = 1, next = 1; seen <= all; ++seen) {
    running.value = std::max(running.value, samples[static_cast<size_t>(seen - 1)].value);
    if (seen != next && seen != all) continue;
    result.num_samples.push_back(seen);
    result.running.push_back(running);
    if (seen == next) next *= 2;
  }
  std::vector<Amax> ascending(samples.begin(), samples.end());
  std::ranges::sort(ascending, {}, &Amax::value);
  result.low = quantile_of_maximum(ascending, kTail);
  result.high = quantile_of_maximum(ascending, 1.0 - kTail);
  return result;
}

}  // namespace kvcal
