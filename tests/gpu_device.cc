// Tells whether the tests labelled gpu reach a device. Without one they check the host's part only:
// this test is then skipped, or fails where KVCAL_REQUIRE_GPU=1 says that there should be one.
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "core/error.h"
#include "kernels/backends.h"

int main() {
  constexpr int kSkipped = 77;
  try {
    const auto backend = kvcal::kBackends.at(kvcal::gpu_device_name())({});
    std::cout << backend->description() << "\n";
    return 0;
  } catch (const kvcal::Error& error) {
    const char* required = std::getenv("KVCAL_REQUIRE_GPU");
    const bool is_required = required && std::string_view(required) == "1";
    std::cout << (is_required ? "error: " : "skipped: ") << error.what() << "\n";
    return is_required ? 1 : kSkipped;
  }
}
