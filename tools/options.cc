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

void add_cache_options(CLI::App& command, CacheOptions& options) {
  command
      .add_option("--kv-cache-dtype", options.kv_cache_dtype,
                  "auto, float32, float16, bfloat16, fp8_e4m3, fp8_e5m2 or fp8_e4m3fnuz")
      ->capture_default_str();
  command
      .add_option("--scales", options.scales,
                  "Scales to use instead of the checkpoint's: kv_cache_scales.json, a scales-only "
                  "overlay, a checkpoint, a folder of rank files")
      ->check(is_not_empty());
  command.add_flag("--unit-scales", options.unit_scales,
                   "Scale 1.0 in every layer, as engines use without scales");
}

}  // namespace kvcal
