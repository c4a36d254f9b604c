#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "family/model_config.h"

namespace kvcal {

/// The devices of a run by name, and how they compute.
struct DeviceOptions {
  std::string device = "auto";         ///< NAME, or NAME:I,J of GPUs
  std::string compute_dtype = "auto";  ///< or float32, bfloat16, float16
  int threads = 0;                     ///< 0: one for each core
  int default_index = 0;               ///< of a GPU that is not named by number
};

/// The backends that options.device names. Throws Error that lists those of this build.
std::vector<std::unique_ptr<Backend>> open_backends(const DeviceOptions& options);
/// The same for a command that runs on one device.
std::unique_ptr<Backend> open_backend(const DeviceOptions& options);
/// Pointers to the backends.
std::vector<Backend*> borrowed(std::span<const std::unique_ptr<Backend>> backends);
/// The compute dtype for the model on that backend. Throws Error where the backend lacks it.
ComputeType compute_type_of(const DeviceOptions& options, const Backend& backend,
                            const ModelConfig& config);

}  // namespace kvcal
