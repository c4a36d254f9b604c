#pragma once

#include <memory>

#include "backend/backend.h"

namespace kvcal {

/// The backend of device options.device_index. Throws Error where there is no such device.
std::unique_ptr<Backend> make_gpu_backend(const BackendOptions& options);
/// Whether make_gpu_backend has a device to choose.
bool has_gpu_device();

}  // namespace kvcal
