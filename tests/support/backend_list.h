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
inline std::unique_ptr<Backend> make_backend(std::string_view name, int num_threads = 1) {
#ifdef KVCAL_TEST_SIMULATED_GPU
  if (name == "simulated") return make_gpu_backend({});
#endif
  return kBackends.at(name)({.num_threads = num_threads});
}

/// Names of all backends that can run here.
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
  return names;
}

}  // namespace kvcal::test
