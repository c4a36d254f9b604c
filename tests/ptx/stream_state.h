#pragma once

#include <cuda_runtime_api.h>

namespace kvcal::ptx {

/// Keeps the error for cudaGetLastError, and returns it.
cudaError_t failed(cudaError_t error);

}  // namespace kvcal::ptx
