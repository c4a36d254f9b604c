#pragma once

#include <string>

namespace kvcal {

/// The name of this machine, as Slurm knows it where it started the process.
std::string host_name();

}  // namespace kvcal
