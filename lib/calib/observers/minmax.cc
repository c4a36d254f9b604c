#include "calib/observer.h"
#include "core/json.h"
#include "quant/setting_range.h"

namespace kvcal {
namespace {

/// "static_minmax": the running extremes. Source: llm-compressor StaticMinMaxObserver.
class StaticMinMax : public Observer {
 public:
  bool may_clip() const override { return false; }

 private:
  Amax choose(const Observed& seen, fp8::Format) const override { return seen.range().amax(); }
};

/// "memoryless_minmax": the last batch alone. Source: llm-compressor MemorylessMinMaxObserver.
class MemorylessMinMax : public Observer {
 public:
  bool may_clip() const override { return true; }

 private:
  Amax choose(const Observed& seen, fp8::Format) const override {
    Range last;
    for (const Range& sample : seen.samples)
      if (!sample.empty()) last = sample;
    return last.amax();
  }
};

/// "minmax": moving average of each batch's extremes, min and max apart; the first batch sets them.
/// Float32, rounded where llm-compressor rounds. Source: llm-compressor MinMaxObserver and `lerp`.
class MovingMinMax : public Observer {
 public:
  explicit MovingMinMax(float averaging_constant) : averaging_constant_(averaging_constant) {}
  bool may_clip() const override { return true; }

 private:
  Amax choose(const Observed& seen, fp8::Format) const override {
    Range average;
    for (const Range& sample : seen.samples) {
      if (sample.empty()) continue;
      // Not averaged with itself, which rounding may change.
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

}  // namespace

std::unique_ptr<Observer> make_static_minmax(const QuantArgs&) {
  return std::make_unique<StaticMinMax>();
}
std::unique_ptr<Observer> make_memoryless_minmax(const QuantArgs&) {
  return std::make_unique<MemorylessMinMax>();
}
std::unique_ptr<Observer> make_minmax(const QuantArgs& args) {
  const double constant =
      optional_number(args.observer_kwargs, "averaging_constant").value_or(0.01);
  if (!kAveragingConstants.contains(constant))
    fail("averaging_constant is ", constant, ", expected a number above ", kAveragingConstants.low,
         " to ", kAveragingConstants.high);
  return std::make_unique<MovingMinMax>(static_cast<float>(constant));
}

}  // namespace kvcal
