#pragma once

#include <string>
#include <vector>

#include "run/devices.h"

namespace kvcal {

/// The devices of a list, one by one: "cuda:0,1" is "cuda:0" and "cuda:1".
std::vector<std::string> devices_of(const std::string& device);

/// Number of tasks that run at a time. jobs: the requested number; 0: one for each device.
size_t num_jobs(const DeviceOptions& device, int jobs);

/// A place for one task: a device, and the threads of the processor that belong to it.
struct TaskSlot {
  DeviceOptions device;
  bool is_busy = false;
};
/// One slot for each task that may run at a time.
std::vector<TaskSlot> make_slots(const DeviceOptions& device, int jobs);

}  // namespace kvcal
