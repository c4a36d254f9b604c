#pragma once

#include "backend/backend.h"

namespace kvcal {

/// Speed of a device, for estimates of time before the work.
struct DeviceRate {
  /// Floating-point operations a second of a whole forward pass, if nothing else runs.
  double flop = 1.0;
  /// The part of that speed which other programs leave, as long as they do what they do now; 1
  /// where they are hardly noticed.
  double share = 1.0;
  double logit_seconds = 0.0;  ///< of scoring one logit, with its KL
};

/// The rate of a pass that observes K and V, over that of one that does not: it multiplies K and V
/// twice, and makes histograms.
inline constexpr double kObservingWork = 1.2;
/// A process starts: the program, its threads, the model's files.
inline constexpr double kStartSeconds = 0.3;

/// Multiplies two matrices for some tenths of a second, in spells: the fastest gives the speed, all
/// of them the share. threads: of the processor, for scores.
DeviceRate measure_rate(Backend& backend, ComputeType type, int threads);

}  // namespace kvcal
