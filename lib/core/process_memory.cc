#include "core/process_memory.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>

namespace kvcal {
namespace {

namespace fs = std::filesystem;

/// Control groups v1 express "no limit" by a number near 2^63.
constexpr uint64_t kNoLimit = uint64_t{1} << 60;

/// Number after a key at the start of a line, "MemAvailable:   123 kB".
std::optional<uint64_t> number_behind(const fs::path& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t digits = line.find_first_of("0123456789", key.size());
    if (digits != std::string::npos) return std::strtoull(line.c_str() + digits, nullptr, 10);
  }
  return std::nullopt;
}

/// Number in a file; nullopt where it holds none ("max").
std::optional<uint64_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

/// File names of one version of control groups.
struct GroupFiles {
  const char* limit;
  const char* used;
  const char* idle_file_pages;  ///< in memory.stat
};
constexpr GroupFiles kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                               "total_inactive_file "};
constexpr GroupFiles kVersion2{"memory.max", "memory.current", "inactive_file "};

/// Bytes that the control group of folder may still take.
std::optional<uint64_t> left_in(const fs::path& folder, const GroupFiles& files) {
  const auto limit = number_in(folder / files.limit);
  const auto used = number_in(folder / files.used);
  if (!limit || !used || *limit >= kNoLimit) return std::nullopt;
  const uint64_t idle = number_behind(folder / "memory.stat", files.idle_file_pages).value_or(0);
  const uint64_t held = *used - std::min(*used, idle);
  return *limit - std::min(*limit, held);
}

void take_smaller(std::optional<uint64_t>& least, std::optional<uint64_t> value) {
  if (value) least = std::min(least.value_or(*value), *value);
}

/// Applies the limits of the group and its parents. path: from /proc/self/cgroup.
void take_groups(std::optional<uint64_t>& least, const fs::path& mount, std::string_view path,
                 const GroupFiles& files) {
  // Inside a container the path may be the host's, of which only the mount itself is visible.
  fs::path group = fs::path(path).relative_path();
  take_smaller(least, left_in(mount, files));
  for (; !group.empty(); group = group.parent_path())
    take_smaller(least, left_in(mount / group, files));
}

}  // namespace

uint64_t resident_bytes() {
  return number_behind("/proc/self/status", "VmRSS:").value_or(0) * 1024;
}

// getrusage would count a large parent's pages, kept over exec.
uint64_t peak_resident_bytes() {
  return number_behind("/proc/self/status", "VmHWM:").value_or(0) * 1024;
}

std::optional<uint64_t> available_memory(const fs::path& root) {
  std::optional<uint64_t> least;
  if (const auto free = number_behind(root / "proc/meminfo", "MemAvailable:")) least = *free * 1024;
  const fs::path mount = root / "sys/fs/cgroup";
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:memory:/path" or "0::/path"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view path = std::string_view(line).substr(second + 1);
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers == ",,") {
      take_groups(least, mount, path, kVersion2);
    } else if (controllers.find(",memory,") != std::string::npos) {
      take_groups(least, mount / "memory", path, kVersion1);
    }
  }
  return least;
}

}  // namespace kvcal
