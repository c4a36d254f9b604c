// Observers that search the histogram of all samples.
#include "core/json.h"
#include "quant/observer.h"

namespace kvcal {
namespace {

using Search = std::function<Amax(const MagnitudeHistogram&, Amax largest, const KvFormat&)>;

std::unique_ptr<Observer> observer_by_search(Search search) {
  return observer_by(
      true, [search = std::move(search)](const TensorStatistics& seen, const KvFormat& format) {
        const Amax largest = seen.range().amax();
        return largest.value == 0.0f ? largest : search(seen.histograms[0], largest, format);
      });
}

/// Reason why weights do not support these observers.
constexpr std::string_view kWholeWeight = "a weight is known whole; 'mse' searches its best range";

constexpr ObserverSetting kPercentile[] = {
    {.name = "percentile",
     .range = kPercentiles,
     .expected = "a number over 0 and at most 100: how much of what is seen does not clip"},
};

// Names and defaults: llm-compressor `observers/mse.py`.
constexpr ObserverSetting kMse[] = {
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

/// Range with the smallest KL divergence of the quantized distribution.
ObserverRow entropy_observer() {
  return {.why_not = {"", kWholeWeight, ""},
          .make = [](const Json&) { return observer_by_search(entropy_amax); }};
}

/// Magnitude that a given share of the values does not exceed.
ObserverRow percentile_observer() {
  return {
      .why_not = {"", kWholeWeight, ""}, .settings = kPercentile, .make = [](const Json& kwargs) {
        const double percent = optional_number(kwargs, "percentile").value_or(99.99);
        return observer_by_search([percent](const auto& histogram, Amax largest, auto) {
          return percentile_amax(histogram, largest, percent);
        });
      }};
}

/// Range with the smallest error, by llm-compressor's search over all samples at once instead of an
/// average of each sample's result.
ObserverRow mse_observer() {
  return {.settings = kMse,
          .make =
              [](const Json& kwargs) {
                return observer_by_search([options = mse_options(kwargs)](
                                              const auto& histogram, Amax largest, auto format) {
                  return mse_amax(histogram, largest, format, options);
                });
              },
          .searches_weights = true};
}

ObserverRow memoryless_mse_observer() {
  constexpr std::string_view kLastSample = "it keeps only the last sample; 'mse' searches over all";
  return {.why_not = {kLastSample, "", kLastSample}, .settings = kMse, .searches_weights = true};
}

}  // namespace kvcal
