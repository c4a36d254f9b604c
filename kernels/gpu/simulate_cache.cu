// What attention reads from a cache of a simulated format. A measurement, not a serving path: one
// thread a head, with the host's code.
#include "kernels/gpu/device.h"
#include "kernels/gpu/gpu_backend.h"
#include "kernels/gpu/row_access.h"

namespace kvcal::gpu {
namespace {

__global__ void simulate_cache_kernel(SimulateCacheArgs args) {
  for_pieces(args.x.tokens * args.x.heads, [&](int64_t index) {
    const Place head = place_of(index, args.x.heads);  // its token, and which head it is
    round_trip(args.format,
               args.x.data + head.row * args.x.row_stride + head.piece * args.x.head_dim,
               args.x.head_dim, args.scales ? args.scales[head.piece] : 1.0f);
  });
}

}  // namespace

void GpuBackend::do_simulate_cache(const SimulateCacheArgs& args) {
  launch("simulate_cache", pieces_launch(stream(), args.x.tokens * args.x.heads, properties_),
         simulate_cache_kernel, args);
}

}  // namespace kvcal::gpu
