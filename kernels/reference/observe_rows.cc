#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/elements.h"
#include "kernels/reference/reference_backend.h"
#include "quant/magnitude_histogram.h"

namespace kvcal {

void ReferenceBackend::do_observe_rows(const ObserveRowsArgs& args) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (size_t s = 0; s < args.segments.size(); ++s) {
    const Segment& segment = args.segments[s];
    ObservedRange range{.min = kInfinity, .max = -kInfinity, .first_nonfinite = -1};
    for (int64_t i = 0; i < segment.q_count * args.width; ++i) {
      const float x =
          reference::load_float(args.type, args.x, segment.q_begin * args.width + i) + 0.0f;
      if (!std::isfinite(x)) {
        if (range.first_nonfinite < 0) range.first_nonfinite = static_cast<int32_t>(i / args.width);
        continue;
      }
      range.min = std::min(range.min, x);
      range.max = std::max(range.max, x);
      if (args.histogram) ++args.histogram[MagnitudeHistogram::bin_of(x)];
    }
    args.ranges[s] = range;
  }
}

}  // namespace kvcal
