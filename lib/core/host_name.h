#pragma once

#include <string>

namespace kvcal {

/// Name of this machine: Slurm's where Slurm started the process.
std::string host_name();

}  // namespace kvcal
