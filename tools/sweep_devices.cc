#include "sweep_devices.h"

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

size_t num_jobs(const SweepOptions& options) {
  return options.jobs > 0 ? static_cast<size_t>(options.jobs)
                          : devices_of(options.device.device).size();
}

int num_threads(const SweepOptions& options) {
  return options.device.threads > 0 ? options.device.threads
                                    : static_cast<int>(std::max<size_t>(1, allowed_cpus().size()));
}

std::vector<SweepSlot> make_slots(const SweepOptions& options) {
  const std::vector<std::string> devices = devices_of(options.device.device);
  const size_t jobs = num_jobs(options);
  const int all = num_threads(options);
  std::vector<SweepSlot> slots(jobs);
  for (size_t i = 0; i < jobs; ++i) {
    slots[i].device = options.device;
    slots[i].device.device = devices[i % devices.size()];
    if (jobs > 1) slots[i].device.threads = std::max(1, all / static_cast<int>(jobs));
  }
  return slots;
}

}  // namespace kvcal
