#include "core/host_name.h"

#include <unistd.h>

#include <array>
#include <cstdlib>

namespace kvcal {

std::string host_name() {
  if (const char* node = std::getenv("SLURMD_NODENAME"); node && *node) return node;
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "unknown";
  return name.data();
}

}  // namespace kvcal
