#pragma once

#include <functional>
#include <memory>

#include "backend/backend.h"

namespace kvcal {

/// The backend of device options.device_index. Throws Error where there is no such device.
std::unique_ptr<Backend> make_gpu_backend(const BackendOptions& options);
/// Milliseconds, on the device's clock, of the operations that body issues to a GPU backend.
double gpu_milliseconds(Backend& backend, const std::function<void()>& body);
/// Copies within the device's memory.
void gpu_copy(Backend& backend, const std::byte* from, std::byte* to, size_t bytes);
/// Whether make_gpu_backend has a device.
bool has_gpu_device();

}  // namespace kvcal
