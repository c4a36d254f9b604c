#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/registry.h"
#include "quant/magnitude_histogram.h"
#include "quant/quant_args.h"
#include "quant/scale.h"

namespace kvcal {

/// What shares one scale: its extremes sample by sample, and all its magnitudes.
struct Observed {
  std::vector<Range> samples;    ///< in data set order; empty ones had nothing of it
  MagnitudeHistogram histogram;  ///< of all samples

  Range range() const {
    Range all;
    for (const Range& sample : samples) all.fold(sample);
    return all;
  }
};

/// Turns what was seen of one quantization group into the magnitude its largest code stands for.
class Observer {
 public:
  virtual ~Observer() = default;
  /// Throws Error if nothing was observed.
  Amax amax(const Observed& seen, fp8::Format format) const;
  /// Whether it may be less than what was seen, so that values clip.
  virtual bool may_clip() const = 0;

 private:
  /// At least one sample is not empty.
  virtual Amax choose(const Observed& seen, fp8::Format format) const = 0;
};

using MakeObserver = std::unique_ptr<Observer>(const QuantArgs& args);
MakeObserver make_memoryless_minmax, make_minmax, make_static_minmax;
MakeObserver make_entropy, make_mse, make_percentile;

/// Name in recipes → maker. Names and meanings are llm-compressor's where it has them; do not reuse
/// one for another idea.
extern const Registry<MakeObserver*> kObservers;

/// What a scheme that names no observer gets: every element that is shown counts.
inline constexpr std::string_view kDefaultObserver = "static_minmax";

/// The observer a scheme asks for. Throws Error for arguments out of range.
std::unique_ptr<Observer> make_observer(const QuantArgs& args);

}  // namespace kvcal
