#pragma once

#include <memory>
#include <string>
#include <string_view>

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
/// Whether the first one can.
inline bool has_gpu() {
  return gpu_problem(0).empty();
}

}  // namespace kvcal
