#include "quant/mse_search.h"
#include "quant/observers/histogram_observer.h"

namespace kvcal {
namespace {

/// Range with the smallest error, by llm-compressor's search over all samples at once instead of an
/// average of each sample's result.
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

// Names and defaults: llm-compressor `observers/mse.py`.
constexpr ObserverSetting kSettings[] = {
    {.name = "maxshrink",
     .range = kMaxshrinks,
     .expected = "a number over 0 and at most 1: how far the search goes down from the extremes"},
    {.name = "grid",
     .range = kGrids,
     .expected = "a number from 1 to 100000: steps of the search from the extremes to zero"},
    {.name = "norm",
     .range = kNorms,
     .expected = "a number over 0 and at most 100: the power of the error"},
    {.name = "patience",
     .range = kPatiences,
     .is_integer = true,
     .expected = "an integer from 1 to 1000000: steps without gain that end the search"},
    {.name = "expand",
     .range = kExpands,
     .expected = "a number from 1 to 100: where the search begins, in extremes"},
    {.name = "averaging_constant",
     .why_not = "the search sees everything at once, there is no average"},
    {.name = "triton_error_buffer",
     .why_not = "it belongs to llm-compressor's search on a GPU, which ends early"},
};

}  // namespace

ObserverRow mse_observer() {
  return {.settings = kSettings,
          .make = [](const Json& observer_kwargs) -> std::unique_ptr<Observer> {
            return std::make_unique<Mse>(mse_options(observer_kwargs));
          },
          .searches_weights = true};
}

}  // namespace kvcal
