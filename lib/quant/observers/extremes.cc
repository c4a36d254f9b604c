// Observers that choose from the extremes of each sample.
#include "core/json.h"
#include "quant/observer.h"

namespace kvcal {

/// The running extremes. Source: llm-compressor StaticMinMaxObserver.
ObserverRow static_minmax_observer() {
  return {.make =
              [](const Json&) {
                return observer_by(
                    false, [](const TensorStatistics& seen, auto) { return seen.range().amax(); });
              },
          .serves_channels = true};
}

/// Extremes of the last batch. Source: llm-compressor MemorylessMinMaxObserver.
ObserverRow memoryless_minmax_observer() {
  return {.make =
              [](const Json&) {
                return observer_by(true, [](const TensorStatistics& seen, auto) {
                  Range last;
                  for (const Range& sample : seen.ranges)
                    if (!sample.empty()) last = sample;
                  return last.amax();
                });
              },
          .serves_channels = true};
}

namespace {

/// Moving average of each batch's extremes, separately for min and max; the first batch sets them.
/// Float32, rounded where llm-compressor rounds. Source: llm-compressor MinMaxObserver and `lerp`.
Amax moving_average(std::span<const Range> samples, float constant) {
  const auto lerp = [&](float from, float to) { return from * (1.0f - constant) + to * constant; };
  Range average;
  for (const Range& sample : samples) {
    if (sample.empty()) continue;
    // The first batch is not averaged with itself, which rounding may change.
    average = average.empty() ? sample
                              : Range{lerp(average.min, sample.min), lerp(average.max, sample.max)};
  }
  return average.amax();
}

constexpr ObserverSetting kAveraging[] = {
    {.name = "averaging_constant",
     .expected = "a number over 0 and at most 1: the weight of a new sample"},
};

}  // namespace

ObserverRow minmax_observer() {
  // The average of a single weight is its extremes.
  return {.settings = kAveraging,
          .has_weight_settings = false,
          .make =
              [](const Json& kwargs) {
                const double constant =
                    optional_number(kwargs, "averaging_constant").value_or(0.01);
                const NumberRange& range = kAveraging[0].range;
                if (!range.contains(constant))
                  fail("averaging_constant is ", constant, ", expected a number above ",
                       range.least, " to ", range.most);
                return observer_by(true, [constant = static_cast<float>(constant)](
                                             const TensorStatistics& seen, auto) {
                  return moving_average(seen.ranges, constant);
                });
              },
          .serves_channels = true};
}

}  // namespace kvcal
