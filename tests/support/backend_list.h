#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "kernels/backends.h"
#ifdef KVCAL_TEST_SIMULATED_GPU
#include "kernels/gpu/make_gpu_backend.h"
#include "simulator/simulator.h"
#endif

namespace kvcal::test {

/// By name: those of kBackends, and "simulated", the GPU's kernels on a device of the tests.
inline std::unique_ptr<Backend> make_backend(std::string_view name, const BackendOptions& options) {
#ifdef KVCAL_TEST_SIMULATED_GPU
  if (name == "simulated") return make_gpu_backend(options);
#endif
  return kBackends.at(name)(options);
}
inline std::unique_ptr<Backend> make_backend(std::string_view name, int num_threads = 1) {
  return make_backend(name, {.num_threads = num_threads});
}

/// Whether KVCAL_TEST_BACKENDS=gpu keeps the loops over backends to devices, for sanitizers that
/// see only these. Backends that a test names itself, such as its judge, run as ever.
inline bool only_devices() {
  const char* asked = std::getenv("KVCAL_TEST_BACKENDS");
  if (!asked) return false;
  if (std::string_view(asked) != "gpu")
    fail("KVCAL_TEST_BACKENDS is '", asked, "', expected gpu, or no such variable");
  return true;
}

/// Whether a backend of that name computes on a device: this build's GPU, or the simulated one.
inline bool is_device(std::string_view name) {
  return name == "simulated" || (!name.empty() && name == gpu_device_name());
}

/// Whether the first GPU of this machine can be used.
inline bool has_gpu() {
  return gpu_problem(0).empty();
}

/// Names of all backends that can run here, or of the devices alone (only_devices()).
inline std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  const char* required = std::getenv("KVCAL_REQUIRE_GPU");
  if (required && std::string_view(required) == "1" && !has_gpu())
    fail("KVCAL_REQUIRE_GPU=1, and there is no device that this build can use");
  for (const auto& [name, make] : kBackends.rows())
    if (name != gpu_device_name() || has_gpu()) names.emplace_back(name);
#ifdef KVCAL_TEST_SIMULATED_GPU
  names.emplace_back("simulated");
#endif
  if (only_devices()) {
    std::erase_if(names, [](const std::string& name) { return !is_device(name); });
    if (names.empty()) fail("KVCAL_TEST_BACKENDS=gpu, and there is no device");
  }
  return names;
}

/// The devices among them.
inline std::vector<std::string> device_names() {
  std::vector<std::string> names = backend_names();
  std::erase_if(names, [](const std::string& name) { return !is_device(name); });
  return names;
}

}  // namespace kvcal::test
