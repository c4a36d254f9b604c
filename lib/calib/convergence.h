#pragma once

#include <span>

#include "quant/calibration.h"

namespace kvcal {

/// Running amax over the samples, with a 95 % percentile bootstrap interval. samples: the amax of
/// each, in order, at least one. The interval is the limit for infinitely many draws of n samples
/// each: with the values in order, the maximum of a draw is at most the k-th with probability (k /
/// n)^n, so nothing is drawn at random. Its upper end is always the amax. It shows how much depends
/// on few samples, not what other samples would give.
AmaxConvergence convergence_of(std::span<const Amax> samples);

}  // namespace kvcal
