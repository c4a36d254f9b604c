#pragma once

#include "quant/histogram_search.h"
#include "quant/observer.h"

namespace kvcal {

/// Base of observers that choose from the histogram of all samples.
class HistogramObserver : public Observer {
 public:
  bool may_clip() const override { return true; }

 private:
  Amax choose(const TensorStatistics& seen, fp8::Format format) const override {
    const Amax largest = seen.range().amax();
    return largest.value == 0.0f ? largest : search(seen.histograms[0], largest, format);
  }
  virtual Amax search(const MagnitudeHistogram& histogram, Amax largest,
                      fp8::Format format) const = 0;
};

/// Reason why weights do not support these observers.
constexpr std::string_view kWholeWeight = "a weight is known whole; 'mse' searches its best range";

}  // namespace kvcal
