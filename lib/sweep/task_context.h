#pragma once

#include "core/diagnostics.h"
#include "run/devices.h"
#include "sweep/plan.h"
#include "sweep/sweep_folder.h"

namespace kvcal {

/// Everything that a task of a sweep works with. Borrows.
struct TaskContext {
  const Sweep& sweep;
  const SweepFolder& folder;
  const DeviceOptions& device;
  Backend& backend;  ///< of that device
  Diagnostics& diagnostics;
};

}  // namespace kvcal
