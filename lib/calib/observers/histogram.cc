#include "calib/observer.h"
#include "core/json.h"
#include "quant/histogram_search.h"

namespace kvcal {
namespace {

double setting(const QuantArgs& args, const char* name, double value) {
  return optional_number(args.observer_kwargs, name).value_or(value);
}

/// Chooses from the magnitudes of all samples together.
class HistogramObserver : public Observer {
 public:
  bool may_clip() const override { return true; }

 private:
  Amax choose(const Observed& seen, fp8::Format format) const override {
    const Amax largest = seen.range().amax();
    return largest.value == 0.0f ? largest : search(seen.histogram, largest, format);
  }
  virtual Amax search(const MagnitudeHistogram& histogram, Amax largest,
                      fp8::Format format) const = 0;
};

/// "percentile": what all but a given share of the values do not exceed.
class Percentile : public HistogramObserver {
 public:
  explicit Percentile(double percent) : percent_(percent) {}

 private:
  Amax search(const MagnitudeHistogram& histogram, Amax largest, fp8::Format) const override {
    return percentile_amax(histogram, largest, percent_);
  }
  double percent_;
};

/// "mse": the range with the least error. llm-compressor's search, over all samples at once instead
/// of an average of each sample's result.
class Mse : public HistogramObserver {
 public:
  explicit Mse(const MseOptions& options) : options_(options) {}

 private:
  Amax search(const MagnitudeHistogram& histogram, Amax largest,
              fp8::Format format) const override {
    return mse_amax(histogram, largest, format, options_);
  }
  MseOptions options_;
};

/// "entropy": the range whose codes tell most of what was seen.
class Entropy : public HistogramObserver {
  Amax search(const MagnitudeHistogram& histogram, Amax largest,
              fp8::Format format) const override {
    return entropy_amax(histogram, largest, format);
  }
};

}  // namespace

std::unique_ptr<Observer> make_entropy(const QuantArgs&) {
  return std::make_unique<Entropy>();
}
std::unique_ptr<Observer> make_mse(const QuantArgs& args) {
  return std::make_unique<Mse>(mse_options(args.observer_kwargs));
}
std::unique_ptr<Observer> make_percentile(const QuantArgs& args) {
  return std::make_unique<Percentile>(setting(args, "percentile", 99.99));
}

}  // namespace kvcal
