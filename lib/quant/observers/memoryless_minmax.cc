#include "quant/observer.h"

namespace kvcal {
namespace {

/// Extremes of the last batch. Source: llm-compressor MemorylessMinMaxObserver.
class MemorylessMinMax : public Observer {
 public:
  bool may_clip() const override { return true; }

 private:
  Amax choose(const TensorStatistics& seen, fp8::Format) const override {
    Range last;
    for (const Range& sample : seen.ranges)
      if (!sample.empty()) last = sample;
    return last.amax();
  }
};

}  // namespace

ObserverRow memoryless_minmax_observer() {
  return {.make = [](const Json&) -> std::unique_ptr<Observer> {
    return std::make_unique<MemorylessMinMax>();
  }};
}

}  // namespace kvcal
