#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace kvcal {

/// The CPUs next to a PCI device, among those allowed, for a process that the user's launcher left
/// on all CPUs of the machine. Empty: nothing to change, because allowed is narrower than the
/// machine, or sysfs names no such CPUs or all of them. bus_id: "0000:3b:00.0"; sysfs: "/sys".
std::vector<int> cpus_beside(const std::filesystem::path& sysfs, const std::string& bus_id,
                             std::span<const int> allowed);

}  // namespace kvcal
