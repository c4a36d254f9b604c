#include "run/devices.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "core/cpus.h"
#include "core/join.h"
#include "core/registry.h"
#include "kernels/backends.h"

namespace kvcal {
namespace {

/// Parsed --device. indices: empty where none are given.
struct DeviceChoice {
  std::string name;
  std::vector<int> indices;
};

DeviceChoice parse_device(const std::string& text) {
  const size_t colon = text.find(':');
  DeviceChoice choice{.name = text.substr(0, colon), .indices = {}};
  if (colon == std::string::npos) return choice;
  const char* at = text.data() + colon;
  const char* const end = text.data() + text.size();
  while (at != end) {  // at a colon or a comma
    int index = 0;
    const auto [rest, error] = std::from_chars(at + 1, end, index);
    if (error != std::errc() || index < 0 || (rest != end && *rest != ','))
      fail("'", text, "' is no list of devices, expected one like cuda:0,1");
    if (std::ranges::find(choice.indices, index) != choice.indices.end())
      fail("'", text, "' names device ", index, " twice");
    choice.indices.push_back(index);
    at = rest;
  }
  return choice;
}

/// gpu: the build's, or "".
bool is_gpu(const std::string& name, std::string_view gpu) {
  return !gpu.empty() && normalised_name(name) == normalised_name(gpu);
}

/// Throws Error for a GPU that this build does not support.
void check_is_built(const std::string& name) {
  const std::string known = normalised_name(name);
  if (kBackends.find(name) || (known != "cuda" && known != "hip")) return;
  fail("this kvcal was built without ", known == "cuda" ? "CUDA" : "HIP", "; the preset '", known,
       "' builds it (cmake --preset ", known, "); here are ", join(kBackends.names(), ", "));
}

}  // namespace

void tell_warnings(std::span<Backend* const> backends, Diagnostics& diagnostics) {
  std::set<std::string> told;
  for (Backend* backend : backends)
    for (const std::string& warning : backend->take_warnings())
      if (told.insert(warning).second) diagnostics.warn(warning);
}

void tell_warnings(Backend& backend, Diagnostics& diagnostics) {
  Backend* const one = &backend;
  tell_warnings(std::span(&one, 1), diagnostics);
}

std::optional<int> gpu_to_start(const DeviceOptions& options, std::string_view gpu) {
  return in_context("--device", [&]() -> std::optional<int> {
    const DeviceChoice choice = parse_device(options.device);
    const bool may_take_gpu = choice.name == "auto" ? !gpu.empty() : is_gpu(choice.name, gpu);
    if (may_take_gpu) return choice.indices.empty() ? options.default_index : choice.indices[0];
    if (choice.name == "auto") return std::nullopt;
    check_is_built(choice.name);
    kBackends.at(choice.name);
    return std::nullopt;
  });
}

GpuStart::GpuStart(const DeviceOptions& options) {
  const std::string_view gpu = gpu_device_name();
  const std::optional<int> index = gpu_to_start(options, gpu);
  if (!index) return;
  // An error stays in the future, where nobody reads it.
  started_ =
      std::async(std::launch::async, [gpu, index] { kBackends.at(gpu)({.device_index = *index}); });
}

AutomaticDevice automatic_device(std::string_view gpu, const std::string& problem) {
  if (gpu.empty()) return {.name = "cpu", .note = {}};
  if (problem.empty()) return {.name = std::string(gpu), .note = {}};
  return {.name = "cpu", .note = "--device auto takes the CPU: " + problem};
}

std::vector<std::unique_ptr<Backend>> open_backends(const DeviceOptions& options,
                                                    Diagnostics& diagnostics) {
  return in_context("--device", [&] {
    DeviceChoice choice = parse_device(options.device);
    if (choice.name == "auto") {
      const AutomaticDevice chosen =
          automatic_device(gpu_device_name(), gpu_problem(options.default_index));
      if (!chosen.note.empty()) diagnostics.note(chosen.note);
      choice.name = chosen.name;
    }
    check_is_built(choice.name);
    const MakeBackend make = kBackends.at(choice.name);
    const bool takes_gpu = is_gpu(choice.name, gpu_device_name());
    if (!takes_gpu && !choice.indices.empty())
      fail("'", options.device, "': ", choice.name, " is one device, leave the numbers out");
    if (choice.indices.empty()) choice.indices.push_back(takes_gpu ? options.default_index : 0);
    std::vector<std::unique_ptr<Backend>> backends;
    for (const int index : choice.indices)
      backends.push_back(make({.num_threads = options.threads,
                               .device_index = index,
                               .times_products = options.times_products,
                               .times_parts = options.times_parts}));
    tell_warnings(borrowed(backends), diagnostics);
    return backends;
  });
}

std::unique_ptr<Backend> open_backend(const DeviceOptions& options, Diagnostics& diagnostics) {
  const size_t count =
      in_context("--device", [&] { return parse_device(options.device).indices.size(); });
  if (count > 1)
    fail("--device: '", options.device, "' names ", count, " devices, this command runs on one");
  return std::move(open_backends(options, diagnostics).front());
}

std::vector<Backend*> borrowed(std::span<const std::unique_ptr<Backend>> backends) {
  std::vector<Backend*> all;
  for (const auto& backend : backends) all.push_back(backend.get());
  return all;
}

std::string settle_inputs(const DeviceOptions& options, CheckpointQuantization& quantization) {
  static const Registry<bool> kWords{"inputs", {{"as-served", true}, {"16bit", false}}};
  const bool as_served = in_context("--inputs", [&] { return kWords.at(options.inputs); });
  if (!quantization.quantizes_inputs()) return "";
  if (!as_served) quantization.leave_inputs();
  return options.inputs;
}

ComputeType compute_type_of(const DeviceOptions& options, const Backend& backend,
                            const ModelConfig& config) {
  static const Registry<ComputeType> kTypes{"compute dtype",
                                            {{"float32", ComputeType::kFloat32},
                                             {"bfloat16", ComputeType::kBFloat16},
                                             {"float16", ComputeType::kFloat16}}};
  if (options.compute_dtype == "auto") {
    // Weights stay in their dtype on a GPU, so a float16 checkpoint keeps its bits.
    const bool keeps_float16 =
        config.dtype == "float16" && !backend.is_host() && backend.supports(ComputeType::kFloat16);
    return keeps_float16 ? ComputeType::kFloat16 : backend.preferred_compute_type();
  }
  const ComputeType type =
      in_context("--compute-dtype", [&] { return kTypes.at(options.compute_dtype); });
  if (!backend.supports(type))
    fail("--compute-dtype ", name_of(type), " cannot be used on ", backend.description(), "; use ",
         backend.supports(ComputeType::kBFloat16) ? "bfloat16 or float32" : "float32");
  return type;
}

std::string description_of(std::span<const std::unique_ptr<Backend>> backends) {
  std::vector<std::string> all;
  for (const auto& backend : backends) {
    const std::string used = backend->kernels_used();
    all.push_back(backend->description() + (used.empty() ? "" : ", " + used));
  }
  if (all.size() > 1 && std::ranges::count(all, all[0]) == std::ssize(all))
    return std::to_string(all.size()) + " x " + all[0];
  return join(all, ", ");
}

int num_threads(const DeviceOptions& options) {
  return options.threads > 0 ? options.threads
                             : static_cast<int>(std::max<size_t>(1, allowed_cpus().size()));
}

}  // namespace kvcal
