#include "quant/observers/histogram_observer.h"

namespace kvcal {
namespace {

/// Range with the smallest KL divergence of the quantized distribution.
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
