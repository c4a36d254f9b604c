#include "commands.h"

namespace kvcal {

CLI::Validator is_not_empty() {
  return CLI::Validator(
      [](const std::string& value) { return value.empty() ? std::string("is empty") : ""; }, "");
}

CLI::Validator is_not_negative() {
  return CLI::Validator(
      [](const std::string& value) {
        return value.starts_with('-') ? "found " + value + ", expected 0 or more" : "";
      },
      "");
}

void add_device_options(CLI::App& command, DeviceOptions& options) {
  command
      .add_option("--device", options.device,
                  "auto, cpu, reference, cuda[:N[,N...]] or hip[:N[,N...]]")
      ->capture_default_str();
  command
      .add_option("--compute-dtype", options.compute_dtype, "auto, float32, bfloat16 or float16")
      ->capture_default_str();
  command.add_option("--threads", options.threads, "0: one for each core")
      ->capture_default_str()
      ->check(CLI::Range(0, 4096));
}

}  // namespace kvcal
