// Operations that have no kernel yet.
#include "kernels/gpu/gpu_backend.h"

namespace kvcal::gpu {

// attention
void GpuBackend::attention(const AttentionArgs&) {
  fail("attention is not written");
}

}  // namespace kvcal::gpu
