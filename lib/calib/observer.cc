#include "calib/observer.h"

namespace kvcal {

const Registry<MakeObserver*> kObservers{"observer",
                                         {
                                             {"memoryless_minmax", make_memoryless_minmax},
                                             {"minmax", make_minmax},
                                             {"static_minmax", make_static_minmax},
                                         }};

std::vector<Range> Observer::ranges() const {
  if (ranges_.empty()) fail("nothing was observed");
  return ranges_;
}

std::unique_ptr<Observer> make_observer(const QuantArgs& args) {
  return kObservers.at(args.observer.value_or(std::string(kDefaultKvObserver)))(args);
}

}  // namespace kvcal
