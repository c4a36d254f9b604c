#pragma once

#include <string>
#include <vector>

namespace kvcal {

/// The instruction sets that the CPU's kernels are compiled for, best first; one of them is chosen
/// when the program runs.
std::vector<std::string> cpu_target_names();

}  // namespace kvcal
