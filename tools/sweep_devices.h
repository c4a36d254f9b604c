#pragma once

#include <string>
#include <vector>

#include "sweep_inputs.h"

namespace kvcal {

/// The devices of a list, one by one: "cuda:0,1" is "cuda:0" and "cuda:1".
std::vector<std::string> devices_of(const std::string& device);

/// Tasks that run at a time, and threads of the processor that they share.
size_t num_jobs(const SweepOptions& options);
int num_threads(const SweepOptions& options);

/// Where a task runs: a device, and the processor's threads that belong to it.
struct SweepSlot {
  DeviceOptions device;
  bool is_busy = false;
};
/// One for each task that may run at a time.
std::vector<SweepSlot> make_slots(const SweepOptions& options);

}  // namespace kvcal
