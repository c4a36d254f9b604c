#include "quant/observer.h"

namespace kvcal {
namespace {

/// The running extremes. Source: llm-compressor StaticMinMaxObserver.
class StaticMinMax : public Observer {
 public:
  bool may_clip() const override { return false; }

 private:
  Amax choose(const TensorStatistics& seen, fp8::Format) const override {
    return seen.range().amax();
  }
};

}  // namespace

ObserverRow static_minmax_observer() {
  return {.make = [](const Json&) -> std::unique_ptr<Observer> {
    return std::make_unique<StaticMinMax>();
  }};
}

}  // namespace kvcal
