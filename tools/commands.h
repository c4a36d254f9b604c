#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "checkpoint/model_dir.h"
#include "family/architecture.h"
#include "quant/kv_dtype.h"

namespace kvcal {

/// What the process ends with.
enum class ExitStatus : int {
  kDone = 0,
  kBadInput = 1,
  kUsage = 2,
  kGateMissed = 3,
  kInterrupted = 130
};

/// Thrown by a command that has done its work and found a limit exceeded: what() is a line a limit.
class GateMissed : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Adds a subcommand to app; run is set when the user asked for it.
using AddCommand = void (*)(CLI::App& app, std::function<void()>& run);
void add_calibrate(CLI::App& app, std::function<void()>& run);
void add_generate(CLI::App& app, std::function<void()>& run);
void add_eval(CLI::App& app, std::function<void()>& run);
void add_families(CLI::App& app, std::function<void()>& run);
void add_inspect(CLI::App& app, std::function<void()>& run);
void add_scales(CLI::App& app, std::function<void()>& run);
void add_convert(CLI::App& app, std::function<void()>& run);
void add_apply(CLI::App& app, std::function<void()>& run);
void add_sweep(CLI::App& app, std::function<void()>& run);
void add_synth(CLI::App& app, std::function<void()>& run);
void add_verify(CLI::App& app, std::function<void()>& run);
void add_completion(CLI::App& app, std::function<void()>& run);
void add_man(CLI::App& app, std::function<void()>& run);

/// For paths: an empty one is an unset variable of a script.
CLI::Validator is_not_empty();
/// For seeds, which would wrap around.
CLI::Validator is_not_negative();

/// Options that several commands share.
struct DeviceOptions {
  std::string device = "auto";
  std::string compute_dtype = "auto";
  int threads = 0;
  int default_index = 0;  ///< of a GPU that is not named by number
};
void add_device_options(CLI::App& command, DeviceOptions& options);

/// The backends of --device, NAME or NAME:I,J on GPUs. Throws Error with what can be had.
std::vector<std::unique_ptr<Backend>> open_backends(const DeviceOptions& options);
/// The same for a command that runs on one.
std::unique_ptr<Backend> open_backend(const DeviceOptions& options);
/// --compute-dtype for the model on that backend. Throws Error where it cannot.
ComputeType compute_type_of(const DeviceOptions& options, const Backend& backend,
                            const ModelConfig& config);

/// config.json, checked; its path stands in front of any message.
ModelConfig read_config(const ModelDir& model_dir);

/// "8GiB", "512MiB", "4GB", "1000000". Throws Error.
uint64_t parse_byte_size(const std::string& text);

}  // namespace kvcal
