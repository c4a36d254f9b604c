#pragma once

#include <cstddef>

namespace kvcal {

/// Bounds for templates of strangers.
struct TemplateLimits {
  size_t max_steps = 10'000'000;  ///< evaluated nodes; long texts count once for every 64 bytes
  size_t max_output_bytes = size_t{32} << 20;   ///< also the longest text a template may build
  size_t max_memory_bytes = size_t{128} << 20;  ///< all that one rendering makes, output apart
  size_t max_template_bytes = size_t{1} << 20;
};

}  // namespace kvcal
