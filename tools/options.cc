#include <charconv>

#include "commands.h"

#include "core/checked.h"
#include "core/registry.h"
#include "kernels/backends.h"
#include "model/weights.h"

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
  command.add_option("--device", options.device, "auto, cpu or reference")->capture_default_str();
  command
      .add_option("--compute-dtype", options.compute_dtype, "auto, float32, bfloat16 or float16")
      ->capture_default_str();
  command.add_option("--threads", options.threads, "0: one for each core")
      ->capture_default_str()
      ->check(CLI::Range(0, 4096));
}

std::unique_ptr<Backend> open_backend(const DeviceOptions& options) {
  return in_context("--device", [&] {
    const std::string name = options.device == "auto" ? "cpu" : options.device;
    return kBackends.at(name)({.num_threads = options.threads});
  });
}

ComputeType compute_type_of(const DeviceOptions& options, const Backend& backend) {
  static const Registry<ComputeType> kTypes{"compute dtype",
                                            {{"float32", ComputeType::kFloat32},
                                             {"bfloat16", ComputeType::kBFloat16},
                                             {"float16", ComputeType::kFloat16}}};
  if (options.compute_dtype == "auto") return backend.preferred_compute_type();
  const ComputeType type =
      in_context("--compute-dtype", [&] { return kTypes.at(options.compute_dtype); });
  if (!backend.supports(type))
    fail("--compute-dtype ", name_of(type), " cannot be used on ", backend.description(), "; use ",
         backend.supports(ComputeType::kBFloat16) ? "bfloat16 or float32" : "float32");
  return type;
}

ModelConfig read_config(const ModelDir& model_dir) {
  return in_context((model_dir.path() / "config.json").string(),
                    [&] { return read_model_config(model_dir); });
}

uint64_t parse_byte_size(const std::string& text) {
  static const Registry<uint64_t> kUnits{"unit",
                                         {{"", 1},
                                          {"B", 1},
                                          {"KB", 1000},
                                          {"MB", 1000000},
                                          {"GB", 1000000000},
                                          {"KiB", uint64_t{1} << 10},
                                          {"MiB", uint64_t{1} << 20},
                                          {"GiB", uint64_t{1} << 30},
                                          {"TiB", uint64_t{1} << 40}}};
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data())
    fail("'", text, "' is no size, expected one like 8GiB");
  std::string unit(end, text.data() + text.size());
  return checked_mul(number, kUnits.at(unit));
}

KvDType parse_kv_dtype(const std::string& name) {
  static const Registry<KvDType> kDtypes{"KV cache dtype",
                                         {{"float32", KvDType::kFloat32},
                                          {"float16", KvDType::kFloat16},
                                          {"bfloat16", KvDType::kBFloat16},
                                          {"fp8_e4m3", KvDType::kFp8E4m3},
                                          {"fp8_e5m2", KvDType::kFp8E5m2},
                                          {"fp8_e4m3fnuz", KvDType::kFp8E4m3Fnuz}}};
  return kDtypes.at(name);
}

}  // namespace kvcal
