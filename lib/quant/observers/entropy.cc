#include "quant/observers/histogram_observer.h"

namespace kvcal {
namespace {

/// The range whose codes tell most of what was seen.
class Entropy : public HistogramObserver {
  Amax search(const MagnitudeHistogram& histogram, Amax largest,
              fp8::Format format) const override {
    return entropy_amax(histogram, largest, format);
  }
};

}  // namespace

ObserverRow entropy_observer() {
  return {.why_not = {"", kWholeWeight, ""}, .make = [](const Json&) -> std::unique_ptr<Observer> {
            return std::make_unique<Entropy>();
          }};
}

}  // namespace kvcal
