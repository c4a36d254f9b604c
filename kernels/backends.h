#pragma once

#include <memory>

#include "backend/backend.h"
#include "core/registry.h"

namespace kvcal {

using MakeBackend = std::unique_ptr<Backend> (*)(const BackendOptions& options);
/// Name of --device → maker: "cpu", "reference", and "cuda" or "hip" in builds with a GPU.
extern const Registry<MakeBackend> kBackends;

/// Name of this build's GPU backend, or "".
std::string_view gpu_device_name();
/// Whether this machine has a usable device of it.
bool has_gpu();

}  // namespace kvcal
