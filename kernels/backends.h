#pragma once

#include <memory>

#include "backend/backend.h"
#include "core/registry.h"

namespace kvcal {

using MakeBackend = std::unique_ptr<Backend> (*)(const BackendOptions& options);
/// Name of --device → maker: "cpu", "reference", and "cuda" or "hip" in builds with a GPU.
extern const Registry<MakeBackend> kBackends;

/// The GPU backend of this build, or "".
std::string_view gpu_device_name();
/// Whether a device of it can be used here.
bool has_gpu();

}  // namespace kvcal
