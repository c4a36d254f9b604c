#pragma once

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

namespace kvcal::test {

/// Bytes of this process's memory that are pages of mapped files with this in their path.
inline uint64_t mapped_resident_bytes(std::string_view part_of_path) {
  std::ifstream maps("/proc/self/smaps");
  uint64_t kilobytes = 0;
  bool counts = false;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::string first;
    words >> first;
    if (!first.ends_with(':')) {  // "7f00-7f01 r--p 0 fe:00 123 /path"
      counts = line.find(part_of_path) != std::string::npos;
    } else if (counts && first == "Rss:") {
      uint64_t value = 0;
      words >> value;
      kilobytes += value;
    }
  }
  return kilobytes * 1024;
}

}  // namespace kvcal::test
