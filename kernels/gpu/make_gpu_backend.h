#pragma once

#include <functional>
#include <memory>
#include <string>

#include "backend/backend.h"

namespace kvcal {

/// The backend of device options.device_index. Throws Error where there is no such device.
std::unique_ptr<Backend> make_gpu_backend(const BackendOptions& options);
/// Milliseconds, on the device's clock, of the operations that body issues to a GPU backend.
double gpu_milliseconds(Backend& backend, const std::function<void()>& body);
/// Copies within the device's memory.
void gpu_copy(Backend& backend, const std::byte* from, std::byte* to, size_t bytes);
/// Why make_gpu_backend cannot use the device, and what to do, in one line; "" where it can.
std::string gpu_device_problem(int device_index);
/// Number of devices; 0 where there are none, or no driver.
int gpu_device_count();
/// Address on the PCI bus as sysfs names it, "0000:3b:00.0", of a device that make_gpu_backend can
/// use; else, or where it is not told, "". Starts no context.
std::string gpu_device_bus_id(int device_index);

}  // namespace kvcal
