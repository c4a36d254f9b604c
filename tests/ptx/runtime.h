#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace kvcal::ptx {

/// Keeps the error for cudaGetLastError, and returns it.
cudaError_t failed(cudaError_t error);

/// Does an operation of a stream, or records it where the stream is captured. Operations run when
/// they are issued: the order of streams is the simulated device's to judge (tests/simulator).
void issue(cudaStream_t stream, std::function<void()> operation);

}  // namespace kvcal::ptx
