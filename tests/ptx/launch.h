#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "program.h"

namespace kvcal::ptx {

struct Grid {
  uint32_t blocks[3] = {1, 1, 1}, threads[3] = {1, 1, 1};
  size_t dynamic_shared = 0;
};

/// Runs all blocks of a kernel to their ends, on $KVCAL_PTX_THREADS threads; by default one for
/// each processor.
void run_kernel(const Kernel& kernel, const Grid& grid, const std::vector<std::byte>& parameters);

}  // namespace kvcal::ptx
