#include "core/json.h"
#include "quant/observer.h"

namespace kvcal {
namespace {

/// Moving average of each batch's extremes, separately for min and max; the first batch sets them.
/// Float32, rounded where llm-compressor rounds. Source: llm-compressor MinMaxObserver and `lerp`.
class MovingMinMax : public Observer {
 public:
  explicit MovingMinMax(float averaging_constant) : averaging_constant_(averaging_constant) {}
  bool may_clip() const override { return true; }

 private:
  Amax choose(const TensorStatistics& seen, fp8::Format) const override {
    Range average;
    for (const Range& sample : seen.ranges) {
      if (sample.empty()) continue;
      // The first batch is not averaged with itself, which rounding may change.
      average = average.empty()
                    ? sample
                    : Range{lerp(average.min, sample.min), lerp(average.max, sample.max)};
    }
    return average.amax();
  }
  float lerp(float from, float to) const {
    return from * (1.0f - averaging_constant_) + to * averaging_constant_;
  }
  float averaging_constant_;
};

constexpr ObserverSetting kSettings[] = {
    {.name = "averaging_constant",
     .expected = "a number over 0 and at most 1: the weight of a new sample"},
};

}  // namespace

ObserverRow minmax_observer() {
  // The average of a single weight is its extremes.
  return {.settings = kSettings,
          .has_weight_settings = false,
          .make = [](const Json& observer_kwargs) -> std::unique_ptr<Observer> {
            const double constant =
                optional_number(observer_kwargs, "averaging_constant").value_or(0.01);
            const NumberRange& range = kSettings[0].range;
            if (!range.contains(constant))
              fail("averaging_constant is ", constant, ", expected a number above ", range.least,
                   " to ", range.most);
            return std::make_unique<MovingMinMax>(static_cast<float>(constant));
          }};
}

}  // namespace kvcal
