#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "core/registry.h"

namespace kvcal {

using MakeBackend = std::unique_ptr<Backend> (*)(const BackendOptions& options);
/// Name of --device → maker: "cpu", "reference", and "cuda" or "hip" in builds with a GPU.
extern const Registry<MakeBackend> kBackends;

/// Name of this build's GPU backend, or "".
std::string_view gpu_device_name();
/// Why that GPU of this machine cannot be used, in one line; "" where it can.
std::string gpu_problem(int device_index);
/// Number of GPUs for that backend; 0 where there are none.
int gpu_count();
/// Address of a GPU on the PCI bus as sysfs names it, "0000:3b:00.0"; "" where it is not known or
/// the GPU cannot be used.
std::string gpu_bus_id(int device_index);

/// Instruction sets that the CPU's kernels are compiled for, best first; one is selected at run
/// time.
std::vector<std::string> cpu_target_names();

}  // namespace kvcal
