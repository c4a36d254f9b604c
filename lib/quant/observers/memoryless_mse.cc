#include "quant/observer.h"

namespace kvcal {

ObserverRow mse_observer();

ObserverRow memoryless_mse_observer() {
  constexpr std::string_view kLastSample = "it keeps only the last sample; 'mse' searches over all";
  return {.why_not = {kLastSample, "", kLastSample},
          .settings = mse_observer().settings,
          .searches_weights = true};
}

}  // namespace kvcal
