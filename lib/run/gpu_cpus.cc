#include "run/gpu_cpus.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "core/cpus.h"

namespace kvcal {
namespace {

/// Empty where there is no such file.
std::vector<int> cpu_list_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return parse_cpu_list(line);
}

}  // namespace

std::vector<int> cpus_beside(const std::filesystem::path& sysfs, const std::string& bus_id,
                             std::span<const int> allowed) {
  if (bus_id.empty() ||
      !std::ranges::equal(cpu_list_in(sysfs / "devices/system/cpu/online"), allowed))
    return {};
  std::vector<int> beside;
  std::ranges::set_intersection(cpu_list_in(sysfs / "bus/pci/devices" / bus_id / "local_cpulist"),
                                allowed, std::back_inserter(beside));
  if (beside.size() == allowed.size()) beside.clear();
  return beside;
}

}  // namespace kvcal
