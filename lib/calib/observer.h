#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/registry.h"
#include "quant/quant_args.h"
#include "quant/scale.h"

namespace kvcal {

/// Turns the extremes of batch after batch into one Range a quantization group. A batch is one
/// sample.
class Observer {
 public:
  virtual ~Observer() = default;
  /// Folds in one batch: its extremes, one Range a group; called in data set order.
  virtual void observe(std::span<const Range> batch) = 0;
  /// One Range a group. Throws Error if nothing was observed.
  std::vector<Range> ranges() const;
  /// Whether a range may be smaller than what was seen, so that values clip.
  virtual bool may_clip() const = 0;

 protected:
  std::vector<Range> ranges_;
};

using MakeObserver = std::unique_ptr<Observer>(const QuantArgs& args);
MakeObserver make_memoryless_minmax, make_minmax, make_static_minmax;

/// Name in recipes → maker. Names and meanings are llm-compressor's; do not reuse one for another
/// idea.
extern const Registry<MakeObserver*> kObservers;

/// What a scheme that names no observer gets: every element that is shown counts.
inline constexpr std::string_view kDefaultKvObserver = "static_minmax";

/// The observer a scheme asks for.
std::unique_ptr<Observer> make_observer(const QuantArgs& args);

}  // namespace kvcal
