#pragma once

#include <span>

#include "quant/calibration.h"

namespace kvcal {

/// How the amax of all samples came about. samples: the amax of each, in order, at least one. The
/// interval is the percentile bootstrap's of 95 %, in the limit of infinitely many draws of as many
/// samples: of n values in order the maximum of a draw is at most the k-th with probability
/// (k / n)^n, so nothing has to be drawn. Its upper end is always the amax: no draw holds more than
/// was seen, so an interval tells how much hangs on few samples, not what others would show.
AmaxConvergence convergence_of(std::span<const Amax> samples);

}  // namespace kvcal
