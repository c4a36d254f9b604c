#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "family/model_config.h"
#include "stored/fp8_checkpoint.h"

namespace kvcal {

/// Devices of a run by name, and their settings.
struct DeviceOptions {
  std::string device = "auto";         ///< NAME, or NAME:I,J of GPUs
  std::string compute_dtype = "auto";  ///< or float32, bfloat16, float16
  /// Inputs of Linears that the checkpoint quantizes: as engines run them, or 16bit.
  std::string inputs = "as-served";
  int threads = 0;        ///< 0: one for each core
  int default_index = 0;  ///< of a GPU that is not given by number
};

/// Opens the backends that options.device names. Throws Error that lists those of this build.
std::vector<std::unique_ptr<Backend>> open_backends(const DeviceOptions& options);
/// open_backends for a command that runs on one device.
std::unique_ptr<Backend> open_backend(const DeviceOptions& options);
/// Applies options.inputs. Returns it where the checkpoint quantizes inputs, else "". Throws Error
/// for an unknown word.
std::string settle_inputs(const DeviceOptions& options, CheckpointQuantization& quantization);
/// Descriptions of the devices, equal ones once: "2 x NAME".
std::string description_of(std::span<const std::unique_ptr<Backend>> backends);
/// Threads of the processor that a run may use.
int num_threads(const DeviceOptions& options);
/// Pointers to the backends.
std::vector<Backend*> borrowed(std::span<const std::unique_ptr<Backend>> backends);
/// Compute dtype for the model on that backend. Throws Error where the backend does not support it.
ComputeType compute_type_of(const DeviceOptions& options, const Backend& backend,
                            const ModelConfig& config);

}  // namespace kvcal
