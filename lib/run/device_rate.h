#pragma once

#include "backend/backend.h"

namespace kvcal {

/// Speed of a device, for estimates of time before the work.
struct DeviceRate {
  double flop = 1.0;           ///< floating-point operations a second of a whole forward pass
  double logit_seconds = 0.0;  ///< of scoring one logit, with its KL
};

/// The rate of a pass that observes K and V, over that of one that does not: it multiplies K and V
/// twice, and makes histograms.
inline constexpr double kObservingWork = 1.2;
/// A process starts: the program, its threads, the model's files.
inline constexpr double kStartSeconds = 0.3;

/// Multiplies two matrices for about a tenth of a second; the fastest spell counts. threads: of the
/// processor, for scores.
DeviceRate measure_rate(Backend& backend, ComputeType type, int threads);

}  // namespace kvcal
