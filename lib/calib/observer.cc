#include "calib/observer.h"

#include <algorithm>

namespace kvcal {

const Registry<MakeObserver*> kObservers{"observer",
                                         {
                                             {"entropy", make_entropy},
                                             {"memoryless_minmax", make_memoryless_minmax},
                                             {"minmax", make_minmax},
                                             {"mse", make_mse},
                                             {"percentile", make_percentile},
                                             {"static_minmax", make_static_minmax},
                                         }};

Amax Observer::amax(const Observed& seen, fp8::Format format) const {
  if (std::ranges::all_of(seen.samples, &Range::empty)) fail("nothing was observed");
  return choose(seen, format);
}

std::unique_ptr<Observer> make_observer(const QuantArgs& args) {
  return kObservers.at(args.observer.value_or(std::string(kDefaultObserver)))(args);
}

}  // namespace kvcal
