#include "sweep/task_slots.h"

#include <algorithm>

#include "core/parallel.h"

namespace kvcal {

std::vector<std::string> devices_of(const std::string& device) {
  const size_t colon = device.find(':');
  std::vector<std::string> devices;
  for (size_t at = colon; at < device.size();) {
    const size_t end = std::min(device.find(',', at + 1), device.size());
    devices.push_back(device.substr(0, colon) + ":" + device.substr(at + 1, end - at - 1));
    at = end;
  }
  return devices.empty() ? std::vector{device} : devices;
}

size_t num_jobs(const DeviceOptions& device, int jobs) {
  return jobs > 0 ? static_cast<size_t>(jobs) : devices_of(device.device).size();
}

std::vector<TaskSlot> make_slots(const DeviceOptions& device, int jobs) {
  const std::vector<std::string> devices = devices_of(device.device);
  std::vector<TaskSlot> slots(num_jobs(device, jobs), TaskSlot{.device = device});
  const int all = num_threads(device), count = static_cast<int>(slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    slots[i].device.device = devices[i % devices.size()];
    if (count > 1) slots[i].device.threads = std::max(1, all / count);
  }
  return slots;
}

}  // namespace kvcal
