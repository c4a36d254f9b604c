#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace kvcal {

/// Numbers of the CPUs that the calling thread may run on; empty where the system does not tell.
std::vector<int> allowed_cpus();
/// Lets the calling thread, and threads that it starts later, run on these CPUs only. A system may
/// refuse; then nothing changes, which is no error.
void allow_cpus(std::span<const int> cpus);
/// Numbers of a list as Linux writes it, "0-3,8-11", ascending; empty where the text is no such
/// list.
std::vector<int> parse_cpu_list(std::string_view text);

}  // namespace kvcal
