#pragma once

#include <string>
#include <vector>

namespace kvcal {

/// Instruction sets that the CPU's kernels are compiled for, best first; one is selected at run
/// time.
std::vector<std::string> cpu_target_names();

}  // namespace kvcal
