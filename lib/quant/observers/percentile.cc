#include "core/json.h"
#include "quant/observers/histogram_observer.h"

namespace kvcal {
namespace {

/// Magnitude that a given share of the values does not exceed.
class Percentile : public HistogramObserver {
 public:
  explicit Percentile(double percent) : percent_(percent) {}

 private:
  Amax search(const MagnitudeHistogram& histogram, Amax largest, fp8::Format) const override {
    return percentile_amax(histogram, largest, percent_);
  }
  double percent_;
};

constexpr ObserverSetting kSettings[] = {
    {.name = "percentile",
     .range = kPercentiles,
     .expected = "a number over 0 and at most 100: how much of what is seen does not clip"},
};

}  // namespace

ObserverRow percentile_observer() {
  return {.why_not = {"", kWholeWeight, ""},
          .settings = kSettings,
          .make = [](const Json& observer_kwargs) -> std::unique_ptr<Observer> {
            return std::make_unique<Percentile>(
                optional_number(observer_kwargs, "percentile").value_or(99.99));
          }};
}

}  // namespace kvcal
