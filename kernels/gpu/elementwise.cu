#include "kernels/gpu/device.h"
#include "kernels/gpu/gpu_backend.h"

namespace kvcal::gpu {
namespace {

constexpr unsigned kThreads = 256;

__global__ void add_kernel(AddArgs args) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < args.count) args.out[i] = args.out[i] + args.multiplier * args.x[i];
}

}  // namespace

void GpuBackend::add(const AddArgs& args) {
  check_add(args);
  launch("add", {.stream = stream(), .blocks = ceil_div(args.count, kThreads), .threads = kThreads},
         add_kernel, args);
}

}  // namespace kvcal::gpu
