#include "kernels/gpu/rope.h"

#include <algorithm>

#include "kernels/gpu/gpu_backend.h"

namespace kvcal::gpu {
namespace {

constexpr unsigned kThreads = 256;

/// Rotates rows of this block's tokens; each thread takes one pair at a time.
__global__ void __launch_bounds__(kThreads) rope_kernel(HeadsView x, Angles angles, int rows) {
  const int64_t begin = int64_t{blockIdx.x} * rows;
  const auto half = static_cast<int>(angles.half), heads = static_cast<int>(x.heads);
  const int count = static_cast<int>(smaller<int64_t>(rows, x.tokens - begin)) * heads * half;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    const int pair = i % half, head = i / half % heads;
    const int64_t token = begin + i / half / heads;
    float* values = x.data + token * x.row_stride + head * x.head_dim;
    float& first = angles.interleaved ? values[2 * pair] : values[pair];
    float& second = angles.interleaved ? values[2 * pair + 1] : values[pair + half];
    const int64_t at = angles.positions[token] * angles.half + pair;
    const float a = first, b = second, cosine = angles.cos[at], sine = angles.sin[at];
    first = turned_first(a, b, cosine, sine);
    second = turned_second(a, b, cosine, sine);
  }
}

}  // namespace

void GpuBackend::do_rope(const RopeArgs& args) {
  if (args.rotary_dim == 0) return;
  // About eight pairs per thread.
  const int64_t pairs = args.x.heads * (args.rotary_dim / 2);
  const int64_t rows = std::max<int64_t>(1, 8 * kThreads / pairs);
  launch("rope", {.stream = stream(), .blocks = ceil_div(args.x.tokens, rows), .threads = kThreads},
         rope_kernel, args.x, angles_of(args), static_cast<int>(rows));
}

}  // namespace kvcal::gpu
