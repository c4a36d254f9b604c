#include "core/cpus.h"

#if defined(__linux__)
#include <sched.h>
#endif

#include <charconv>

namespace kvcal {
namespace {

/// More than any machine has, so that a wrong list takes no memory.
constexpr int kMostCpus = 1 << 16;

}  // namespace

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
#endif
  return cpus;
}

void allow_cpus([[maybe_unused]] std::span<const int> cpus) {
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus)
    if (cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
#endif
}

std::vector<int> parse_cpu_list(std::string_view text) {
  const char *at = text.data(), *const end = at + text.size();
  std::vector<int> cpus;
  const auto number = [&](int& value) {
    const auto [rest, error] = std::from_chars(at, end, value);
    at = rest;
    return error == std::errc() && value >= (cpus.empty() ? 0 : cpus.back() + 1) &&
           value < kMostCpus;
  };
  while (at != end) {
    int first = 0;
    if ((!cpus.empty() && *at++ != ',') || !number(first)) return {};
    int last = first;
    if (at != end && *at == '-' && (++at, !number(last) || last < first)) return {};
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

}  // namespace kvcal
