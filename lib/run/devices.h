#pragma once

#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "core/diagnostics.h"
#include "core/json.h"
#include "family/model_config.h"
#include "forward/layerwise.h"
#include "stored/fp8_checkpoint.h"

namespace kvcal {

/// Devices of a run by name, and their settings.
struct DeviceOptions {
  std::string device = "auto";         ///< NAME, or NAME:I,J of GPUs
  std::string compute_dtype = "auto";  ///< or float32, bfloat16, float16
  /// Inputs of Linears that the checkpoint quantizes: as engines run them, or 16bit.
  std::string inputs = "as-served";
  int threads = 0;                                   ///< 0: one for each core
  int default_index = 0;                             ///< of a GPU that is not given by number
  bool times_products = false, times_parts = false;  ///< BackendOptions
};

/// Number of the GPU that the options may take first; none where they take another device. gpu: the
/// build's, or "". Throws Error for a device that is none of this build.
std::optional<int> gpu_to_start(const DeviceOptions& options, std::string_view gpu);

/// Starts driver, context and libraries of that GPU in a thread, so that open_backends finds them
/// ready after other work. What fails there fails again in open_backends, which tells it. The
/// destructor waits for the thread.
class GpuStart {
 public:
  explicit GpuStart(const DeviceOptions& options);

 private:
  std::future<void> started_;
};

/// The device that --device auto takes, and what the user should know of that.
struct AutomaticDevice {
  std::string name, note = {};
};
/// gpu: the build's, or "". problem: why this machine's cannot be used, or "".
AutomaticDevice automatic_device(std::string_view gpu, const std::string& problem);
/// Opens the backends that options.device names, and tells why a GPU is not used or slow. Throws
/// Error that lists those of this build.
std::vector<std::unique_ptr<Backend>> open_backends(const DeviceOptions& options,
                                                    Diagnostics& diagnostics);
/// open_backends for a command that runs on one device.
std::unique_ptr<Backend> open_backend(const DeviceOptions& options, Diagnostics& diagnostics);
/// Tells warnings of the devices and their operations that are new, equal ones of several devices
/// once.
void tell_warnings(std::span<Backend* const> backends, Diagnostics& diagnostics);
void tell_warnings(Backend& backend, Diagnostics& diagnostics);
/// Applies options.inputs. Returns it where the checkpoint quantizes inputs, else "". Throws Error
/// for an unknown word.
std::string settle_inputs(const DeviceOptions& options, CheckpointQuantization& quantization);
/// Descriptions of the devices and of the kernels that ran so far, equal ones once: "2 x NAME".
std::string description_of(std::span<const std::unique_ptr<Backend>> backends);
/// Threads of the processor that a run may use.
int num_threads(const DeviceOptions& options);
std::vector<Backend*> borrowed(std::span<const std::unique_ptr<Backend>> backends);
/// Compute dtype for the model on that backend. Throws Error where the backend does not support it.
ComputeType compute_type_of(const DeviceOptions& options, const Backend& backend,
                            const ModelConfig& config);

/// Speed of a device, for estimates of time before the work.
struct DeviceRate {
  double flop = 1.0;  ///< floating-point operations a second of products, if nothing else runs
  /// Of all else that a layer does, for a number of a token's residual stream: norms, RoPE,
  /// softmax, observers.
  double pass_seconds = 0.0;
  /// The part of that speed which other programs leave, as long as they do what they do now; 1
  /// where they are hardly noticed.
  double share = 1.0;
  double logit_seconds = 0.0;  ///< of scoring one logit, with its KL

  /// Of layers with so many operations in products, and so many numbers of the residual stream.
  double seconds_of(double operations, double numbers) const {
    return operations / flop + numbers * pass_seconds;
  }
};

/// The products of a pass that observes K and V, over those of one that does not: it multiplies K
/// and V twice.
inline constexpr double kObservingWork = 1.2;
/// A process starts: the program, its threads, the model's files.
inline constexpr double kStartSeconds = 0.3;

/// Multiplies two matrices for some tenths of a second, in spells: the fastest gives the speed, all
/// of them the share. threads: of the processor, for scores.
DeviceRate measure_rate(Backend& backend, ComputeType type, int threads);

// What a run's devices did: the algorithms of their matrix library, and the time of their parts.

/// The choices of all, equal ones once.
std::vector<ProductChoice> product_choices_of(std::span<const std::unique_ptr<Backend>> backends);
/// Seconds of each part, of all together; waits for them.
std::vector<PartTime> part_times_of(std::span<const std::unique_ptr<Backend>> backends);

/// For the manifest; null where there is none.
Json products_json(std::span<const ProductChoice> choices);
/// Tables of both, of those that there are.
std::string device_work_text(std::span<const ProductChoice> choices,
                             std::span<const PartTime> parts);

/// Sets a host's memory outside the next forward pass, and the most that the process can get. Call
/// it after all input is read. threads: 0 means one a CPU.
void set_process_memory(LayerwiseOptions& options, const ModelConfig& config, int threads);

}  // namespace kvcal
